-- Grain: one row a comparison and dimension; the published table `preferences`.
SELECT
    concat(comparison_id, '-', dimension) AS preference_id,
    split,
    comparison_id,
    dimension,
    preference,
    confidence,
    weighed.votes,
    weight_a,
    weight_b,
    weight_tie,
    unanimous
FROM weighed
JOIN comparisons USING (comparison_id)
WHERE split = $split
ORDER BY comparison_id, dimension
