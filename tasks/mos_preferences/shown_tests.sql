-- Grain: one row a listening test of a source that has several, whose ratings span less than a quarter of what those of
-- another span.
WITH tests AS (
    SELECT dataset, subset AS test, min(score) AS lowest, max(score) AS highest FROM imported GROUP BY dataset, subset
)

SELECT dataset, coalesce(test, 'without a name') AS test, lowest, highest
FROM tests
QUALIFY 4 * (highest - lowest) < max(highest - lowest) OVER (PARTITION BY dataset)
ORDER BY dataset, test
