-- Grain: one row a track that the separator could not take.
SELECT 'tracks' AS "table", track_id AS item, 'separate' AS stage, separated.reason, separated.detail, source_file, line
FROM pool
JOIN separated USING (row)
WHERE separated.reason IS NOT NULL
ORDER BY row
