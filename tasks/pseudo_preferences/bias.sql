-- Grain: one row a scope, value, dimension and set of judgments; the published table `bias` (the paper's Table 8).
WITH both_orders AS (
    SELECT
        passes.*,
        verdicts.musicality = verdicts.alignment AS same,
        pairs.modality,
        concat(least(model_a, model_b), ' / ', greatest(model_a, model_b)) AS models
    FROM passes
    JOIN pairs USING (pair_id)
    JOIN verdicts USING (pair_id)
    WHERE forward_choice IS NOT NULL AND reverse_choice IS NOT NULL
),

scoped AS (
    SELECT 'all' AS scope, 'all' AS value, * FROM both_orders
    UNION ALL
    SELECT 'modality', modality, * FROM both_orders
    UNION ALL
    SELECT 'model_pair', models, * FROM both_orders
    UNION ALL
    SELECT 'judge', $judge, * FROM both_orders
),

sets AS (
    SELECT scope, value, dimension, 'original' AS set, forward_choice AS choice, 'a' AS first_shown, agreed, same
    FROM scoped
    UNION ALL
    SELECT scope, value, dimension, 'reversed', reverse_choice, 'b', agreed, same FROM scoped
    UNION ALL
    SELECT scope, value, dimension, 'agreed', agreed, NULL, agreed, same FROM scoped
)

SELECT
    scope,
    value,
    dimension,
    set,
    count(choice) AS pairs,
    count(*) FILTER (choice = 'a') / greatest(count(choice), 1) AS share_a,
    count(*) FILTER (choice = 'b') / greatest(count(choice), 1) AS share_b,
    count(*) FILTER (choice = 'tie') / greatest(count(choice), 1) AS share_tie,
    CASE WHEN set <> 'agreed' THEN count(*) FILTER (choice = first_shown) / greatest(count(choice), 1) END AS share_first,
    count(agreed) / count(*) AS consistency,
    CASE WHEN set = 'agreed' AND count(same) > 0 THEN count(*) FILTER (same) / count(same) END AS same_as_other
FROM sets
GROUP BY scope, value, dimension, set
ORDER BY
    list_position(['all', 'judge', 'modality', 'model_pair'], scope),
    value,
    dimension,
    list_position(['original', 'reversed', 'agreed'], set)
