-- Grain: one row a dimension (its heading) or a set of judgments of it; CMI-RewardBench's Table 8.
WITH listed AS (
    SELECT
        dimension,
        CASE set WHEN 'original' THEN 1 WHEN 'reversed' THEN 2 WHEN 'agreed' THEN 3 END AS place,
        CASE set
            WHEN 'original' THEN 'Original (A, B)' WHEN 'reversed' THEN 'Reversed (B, A)' ELSE 'Agreed (Filtered)'
        END AS name,
        format('{:.2f}', 100 * share_a) AS a,
        format('{:.2f}', 100 * share_b) AS b,
        format('{:.2f}', 100 * share_tie) AS tie
    FROM bias
    WHERE scope = 'all' AND set <> 'jury'
    UNION ALL
    SELECT DISTINCT dimension, 0, upper(dimension[1]) || dimension[2:], '', '', '' FROM bias WHERE scope = 'all'
)

SELECT name AS "Configuration", a AS "Win A (%)", b AS "Win B (%)", tie AS "Tie (%)"
FROM listed
ORDER BY dimension DESC, place
