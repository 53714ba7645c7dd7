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
    -- a list of one: columns of their own would take room for every line passed by, nine of ten
    CASE
        WHEN passed IS NULL
            THEN [{
                'submission': CASE WHEN starts_with(link_id, 't3_') THEN link_id[4:] ELSE link_id END,
                -- without a parent it is first-level (the interface's form since December 2022, in which a number is
                -- another comment)
                'first_level': coalesce(parent_id, link_id) = link_id,
                'id': id,
                'author': author,
                'text': CASE WHEN coalesce(parent_id, link_id) = link_id THEN body END,
                -- ups less downs where the dump has both, else its score, which is that already
                'score':
                    coalesce(TRY_CAST(ups AS INTEGER)::BIGINT - TRY_CAST(downs AS INTEGER), TRY_CAST(score AS INTEGER)),
                'notice':
                    coalesce(lower(stickied) IN ('true', '1'), false)
                    OR coalesce(distinguished IN ('moderator', 'admin'), false),
                'by_asker': coalesce(lower(is_submitter) IN ('true', '1'), false),
                'flair': author_flair_text,
                -- dumps from 2023-11 on keep the text of what was gone when it was read again, a day and a half later
                'gone':
                    coalesce(TRY(json_extract_string(_meta, '$.was_deleted_later')) = 'true', false)
                    OR coalesce(nullif(removal_reason, ''), nullif(removed_by_category, ''), nullif(nullif(banned_by, ''), 'false'))
                        IS NOT NULL,
                -- votes that nobody could see yet, or that were counted within a day, decide nothing; the second
                -- reading counts anew
                'unripe':
                    coalesce(lower(score_hidden) IN ('true', '1'), false)
                    OR coalesce(
                        coalesce(
                            TRY_CAST(TRY(json_extract_string(_meta, '$.retrieved_2nd_on')) AS DOUBLE),
                            TRY_CAST(retrieved_on AS DOUBLE),
                            TRY_CAST(retrieved_utc AS DOUBLE)
                        ) - TRY_CAST(created_utc AS DOUBLE) BETWEEN 0 AND 86400,
                        false
                    )
            }]
    END AS kept
FROM lines
