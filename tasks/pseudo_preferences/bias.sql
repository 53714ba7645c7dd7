-- Grain: one row a scope, value, dimension and set of judgments; the published table `bias` (the paper's Table 8).
--
-- The set `jury` is what the votes of several judges come to; `alphas` has how far they agree.
WITH both_orders AS (
    SELECT
        passes.*,
        any_value(agreed) FILTER (dimension = 'musicality') OVER one_judge
            = any_value(agreed) FILTER (dimension = 'alignment') OVER one_judge AS same,
        pairs.modality,
        concat(least(model_a, model_b), ' / ', greatest(model_a, model_b)) AS models
    FROM passes
    JOIN pairs USING (pair_id)
    WINDOW one_judge AS (PARTITION BY pair_id, judge)
),

scoped AS (
    SELECT 'all' AS scope, 'all' AS value, * FROM both_orders
    UNION ALL
    SELECT 'modality', modality, * FROM both_orders
    UNION ALL
    SELECT 'model_pair', models, * FROM both_orders
    UNION ALL
    SELECT 'judge', judge, * FROM both_orders
),

answered_twice AS (SELECT * FROM scoped WHERE forward_choice IS NOT NULL AND reverse_choice IS NOT NULL),

sets AS (
    SELECT scope, value, dimension, 'original' AS set, forward_choice AS choice, 'a' AS first_shown, agreed, same
    FROM answered_twice
    UNION ALL
    SELECT scope, value, dimension, 'reversed', reverse_choice, 'b', agreed, same FROM answered_twice
    UNION ALL
    SELECT scope, value, dimension, 'agreed', agreed, NULL, agreed, same FROM answered_twice
    UNION ALL
    SELECT
        scope,
        value,
        scoped.dimension,
        'jury',
        any_value(combined.choice),
        NULL,
        any_value(combined.choice),
        any_value(verdicts.musicality = verdicts.alignment)
    FROM scoped
    JOIN verdicts USING (pair_id)
    LEFT JOIN combined ON combined.item = scoped.pair_id AND combined.dimension = scoped.dimension
    WHERE len($judges::VARCHAR[]) > 1 AND scope <> 'judge'
    GROUP BY scope, value, pair_id, scoped.dimension
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
    CASE
        WHEN set IN ('original', 'reversed') THEN count(*) FILTER (choice = first_shown) / greatest(count(choice), 1)
    END AS share_first,
    count(agreed) / count(*) AS consistency,
    any_value(alphas.alpha) FILTER (set = 'jury') AS alpha,
    CASE
        WHEN set IN ('agreed', 'jury') AND count(same) > 0 THEN count(*) FILTER (same) / count(same)
    END AS same_as_other
FROM sets
LEFT JOIN alphas USING (scope, value, dimension)
GROUP BY scope, value, dimension, set
ORDER BY
    list_position(['all', 'judge', 'modality', 'model_pair'], scope),
    value,
    dimension,
    list_position(['original', 'reversed', 'agreed', 'jury'], set)
