-- Grain: one row a source: its rows that count, the clips that they rate, and ratings by who had rated the clip before.
SELECT
    dataset,
    repeat_votes,
    rows,
    clips,
    again
FROM sources
JOIN (SELECT dataset, count(*) AS rows, count(DISTINCT file) AS clips FROM imported ANTI JOIN repeated USING (row)
    GROUP BY dataset) USING (dataset)
JOIN (SELECT dataset, count(listener_id) - count(DISTINCT (file, listener_id)) FILTER (listener_id IS NOT NULL) AS again
    FROM imported GROUP BY dataset) USING (dataset)
ORDER BY dataset
