-- Grain: one row a line of a file of comments, in its order; of those passed by nothing is kept, the rest is judged later
-- A join would be exact, but it loses the lines' order; a bit by the id's hash lets a few others through to the judge.
WITH lines AS (
    SELECT
        *,
        CASE
            WHEN id IS NULL THEN 'malformed'
            -- null has a hash too
            WHEN link_id IS NOT NULL
                AND get_bit(getvariable('wanted'), (hash(link_id) % getvariable('bits'))::INTEGER) = 0 THEN 'other_thread'
        END AS passed
    FROM dump_lines
)
SELECT
    passed,
    CASE
        WHEN passed IS NOT NULL THEN NULL
        WHEN starts_with(link_id, 't3_') THEN link_id[4:]
        ELSE link_id
    END AS submission,
    -- without a parent it is first-level (the interface's form since December 2022, in which a number is another comment)
    CASE WHEN passed IS NULL THEN coalesce(parent_id, link_id) = link_id END AS first_level,
    CASE WHEN passed IS NULL THEN id END AS id,
    CASE WHEN passed IS NULL THEN author END AS author,
    CASE WHEN passed IS NULL AND coalesce(parent_id, link_id) = link_id THEN body END AS text,
    -- ups less downs where the dump has both, else its score, which is that already
    CASE
        WHEN passed IS NULL
            THEN coalesce(TRY_CAST(ups AS INTEGER)::BIGINT - TRY_CAST(downs AS INTEGER), TRY_CAST(score AS INTEGER))
    END AS score,
    CASE
        WHEN passed IS NULL
            THEN coalesce(lower(stickied) IN ('true', '1'), false) OR coalesce(distinguished IN ('moderator', 'admin'), false)
    END AS notice,
    CASE WHEN passed IS NULL THEN coalesce(lower(is_submitter) IN ('true', '1'), false) END AS by_asker,
    CASE WHEN passed IS NULL THEN author_flair_text END AS flair,
    -- dumps from 2023-11 on keep the text of what was gone when it was read again, a day and a half later
    CASE
        WHEN passed IS NULL
            THEN coalesce(TRY(json_extract_string(_meta, '$.was_deleted_later')) = 'true', false)
                OR coalesce(nullif(removal_reason, ''), nullif(removed_by_category, ''), nullif(banned_by, '')) IS NOT NULL
    END AS gone,
    -- votes that nobody could see yet, or that were counted within a day, decide nothing; the second reading counts anew
    CASE
        WHEN passed IS NULL
            THEN coalesce(lower(score_hidden) IN ('true', '1'), false)
                OR coalesce(
                    coalesce(
                        TRY_CAST(TRY(json_extract_string(_meta, '$.retrieved_2nd_on')) AS DOUBLE),
                        TRY_CAST(retrieved_on AS DOUBLE),
                        TRY_CAST(retrieved_utc AS DOUBLE)
                    ) - TRY_CAST(created_utc AS DOUBLE) BETWEEN 0 AND 86400,
                    false
                )
    END AS unripe
FROM lines
