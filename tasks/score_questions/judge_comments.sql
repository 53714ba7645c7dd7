-- Grain: one row a scanned line of comments that is not passed by; `place` of its file, `line` among those not blank
SELECT
    getvariable('place') AS place,
    rowid + 1 AS line,
    CASE
        WHEN submission IS NULL THEN 'missing_parent'
        -- before all else, so that what the scan lets through by a like hash has the fate of other threads' comments
        WHEN submission NOT IN (SELECT id FROM candidates) THEN 'other_thread'
        WHEN first_level IS NULL THEN 'missing_parent'
        WHEN NOT first_level THEN 'not_first_level'
        WHEN NOT regexp_full_match(id, '[A-Za-z0-9_]{1,32}') THEN 'bad_id'
        WHEN NOT regexp_matches(coalesce(text, ''), '\S') THEN 'missing_body'
        WHEN regexp_matches(text, '^\s*\[deleted\]\s*$') THEN 'deleted'
        WHEN regexp_matches(text, '^\s*\[removed\]\s*$') THEN 'removed'
        WHEN author = 'AutoModerator' THEN 'automatic'
        WHEN score IS NULL THEN 'bad_score'
        ELSE 'kept'
    END AS fate,
    id,
    submission,
    author,
    text,
    score
FROM scanned
WHERE passed IS NULL
