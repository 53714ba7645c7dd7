-- Grain: one row a line of a file of comments, in its order; of lines that are not wanted, only their fate is told
WITH lines AS (
    SELECT
        *,
        CASE WHEN starts_with(link_id, 't3_') THEN link_id[4:] ELSE link_id END AS submission,
        -- ups less downs where the dump has both, else its score, which is that already
        coalesce(TRY_CAST(ups AS INTEGER)::BIGINT - TRY_CAST(downs AS INTEGER), TRY_CAST(score AS INTEGER)) AS points
    FROM dump_lines
),
judged AS (
    SELECT
        *,
        CASE
            WHEN id IS NULL THEN 'malformed'
            WHEN link_id IS NULL OR parent_id IS NULL THEN 'missing_parent'
            WHEN submission NOT IN (SELECT id FROM candidates) THEN 'other_thread'
            WHEN parent_id <> link_id THEN 'not_first_level'
            WHEN NOT regexp_full_match(id, '[A-Za-z0-9_]{1,32}') THEN 'bad_id'
            WHEN trim(coalesce(body, '')) = '' THEN 'missing_body'
            WHEN trim(body) = '[deleted]' THEN 'deleted'
            WHEN trim(body) = '[removed]' THEN 'removed'
            WHEN author = 'AutoModerator' THEN 'automatic'
            WHEN points IS NULL THEN 'bad_score'
            ELSE 'kept'
        END AS fate
    FROM lines
)
SELECT
    fate,
    CASE WHEN fate NOT IN ('malformed', 'missing_parent', 'not_first_level', 'other_thread', 'bad_id') THEN id END AS id,
    CASE WHEN fate NOT IN ('malformed', 'missing_parent', 'other_thread') THEN submission END AS submission,
    CASE WHEN fate NOT IN ('malformed', 'missing_parent', 'other_thread') THEN author END AS author,
    CASE WHEN fate = 'kept' THEN body END AS text,
    CASE WHEN fate = 'kept' THEN points END AS score
FROM judged
