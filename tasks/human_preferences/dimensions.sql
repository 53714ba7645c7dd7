-- Grain: one row a source (and all) and whether a vote prefers one clip in both dimensions; the table `dimensions`.
WITH both_said AS (
    SELECT source, musicality = alignment AS same, confidence_musicality, confidence_alignment
    FROM votes
    WHERE musicality IS NOT NULL AND alignment IS NOT NULL
),

scoped AS (
    SELECT 0 AS place, 'all' AS scope, * EXCLUDE (source) FROM both_said
    UNION ALL
    SELECT 1, source, * EXCLUDE (source) FROM both_said
)

SELECT
    scope AS source,
    CASE WHEN same THEN 'same' ELSE 'different' END AS preferred,
    count(*) AS votes,
    count(*) / sum(count(*)) OVER (PARTITION BY place, scope) AS share,
    avg(confidence_musicality) AS confidence_musicality,
    avg(confidence_alignment) AS confidence_alignment
FROM scoped
GROUP BY place, scope, same
ORDER BY place, scope, same DESC
