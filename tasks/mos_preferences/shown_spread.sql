-- Grain: one row a value of a source's ratings; where there are more than `$most`, a tenth of its range.
WITH ranges AS (
    SELECT dataset, min(score) AS lowest, (max(score) - min(score)) / 10 AS step, count(DISTINCT score) AS scores
    FROM imported
    GROUP BY dataset
)

SELECT
    dataset,
    CASE WHEN scores <= $most THEN score ELSE lowest + step * least(floor((score - lowest) / step), 9) END AS low,
    CASE WHEN scores > $most THEN low + step END AS high,
    count(*) AS ratings
FROM imported
JOIN ranges USING (dataset)
GROUP BY ALL
ORDER BY dataset, low
