-- Grain: one row a pair that is valid in every required dimension; the published table `labels`.
SELECT
    pair_id,
    split,
    prompt_id,
    modality,
    generation_a,
    generation_b,
    model_a,
    model_b,
    musicality,
    alignment,
    $judge AS judge
FROM verdicts
JOIN pairs USING (pair_id)
WHERE reason IS NULL AND split = $split
ORDER BY pair_id
