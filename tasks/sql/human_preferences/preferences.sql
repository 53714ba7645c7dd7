-- Grain: one row a comparison and dimension; the published table `preferences`.
SELECT
    concat(comparison_id, '-', dimension) AS preference_id,
    places.split,
    comparison_id,
    dimension,
    preference,
    confidence,
    votes,
    weight_a,
    weight_b,
    weight_tie,
    unanimous
FROM weighed
JOIN places USING (comparison_id)
JOIN (SELECT comparison_id, min(row) AS row FROM cast_votes GROUP BY comparison_id) USING (comparison_id)
WHERE places.split = $split
ORDER BY row, dimension
