-- Grain: one row the best and one the worst system and clip of each source, by the mean.
WITH ends AS (
    SELECT dataset, 'clip' AS kind, file AS name, mos, votes AS behind FROM placed
    UNION ALL
    SELECT dataset, 'system', system_id, avg(mos), count(*) FROM placed WHERE system_id IS NOT NULL GROUP BY ALL
),

ranked AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY dataset, kind ORDER BY mos DESC, name) AS best,
        row_number() OVER (PARTITION BY dataset, kind ORDER BY mos, name DESC) AS worst,
        count(*) OVER (PARTITION BY dataset, kind) AS names
    FROM ends
)

SELECT dataset, kind, CASE WHEN best = 1 THEN 'best' ELSE 'worst' END AS end_, name, mos, behind
FROM ranked
WHERE (best = 1 OR worst = 1) AND names > 1
ORDER BY dataset, kind DESC, best
