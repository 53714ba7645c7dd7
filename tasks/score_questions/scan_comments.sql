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
    CASE WHEN passed IS NULL THEN parent_id = link_id END AS first_level,
    CASE WHEN passed IS NULL THEN id END AS id,
    CASE WHEN passed IS NULL THEN author END AS author,
    CASE WHEN passed IS NULL AND parent_id = link_id THEN body END AS text,
    -- ups less downs where the dump has both, else its score, which is that already
    CASE
        WHEN passed IS NULL
            THEN coalesce(TRY_CAST(ups AS INTEGER)::BIGINT - TRY_CAST(downs AS INTEGER), TRY_CAST(score AS INTEGER))
    END AS score
FROM lines
