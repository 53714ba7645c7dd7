-- Grain: one row a scope, value and dimension, and each way in which judges voted: for a, for b, for a tie; how many pairs.
SELECT scope, value, dimension, votes, count(*) AS items
FROM (
    SELECT
        unnest([
            {'scope': 'all', 'value': 'all'},
            {'scope': 'modality', 'value': modality},
            {'scope': 'model_pair', 'value': concat(least(model_a, model_b), ' / ', greatest(model_a, model_b))}
        ], recursive := true),
        dimension,
        votes
    FROM (
        SELECT
            pair_id,
            dimension,
            [
                count(*) FILTER (agreed = 'a'),
                count(*) FILTER (agreed = 'b'),
                count(*) FILTER (agreed = 'tie')
            ] AS votes
        FROM passes
        GROUP BY pair_id, dimension
    )
    JOIN pairs USING (pair_id)
)
GROUP BY ALL
ORDER BY ALL
