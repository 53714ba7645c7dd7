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
    CASE WHEN musicality IS NOT NULL THEN confidence_musicality END AS confidence_musicality,
    CASE WHEN alignment IS NOT NULL THEN confidence_alignment END AS confidence_alignment,
    mq_a,
    mq_b,
    if_a,
    if_b,
    $judge AS judge,
    musicality_votes,
    alignment_votes
FROM verdicts
JOIN pairs USING (pair_id)
LEFT JOIN (
    SELECT
        pair_id,
        list(vote ORDER BY place) FILTER (dimension = 'musicality') AS musicality_votes,
        list(vote ORDER BY place) FILTER (dimension = 'alignment') AS alignment_votes
    FROM (
        SELECT *, list_position($judges::VARCHAR[], judge) AS place, coalesce(agreed, 'none') AS vote FROM passes
    )
    WHERE len($judges::VARCHAR[]) > 1
    GROUP BY pair_id
) USING (pair_id)
LEFT JOIN (
    SELECT
        pair_id,
        round(2 * avg(confidence) FILTER (dimension = 'musicality')) / 2 AS confidence_musicality,
        round(2 * avg(confidence) FILTER (dimension = 'alignment')) / 2 AS confidence_alignment,
        round(2 * avg(score_a) FILTER (dimension = 'musicality' AND judge NOT LIKE 'scorer:%')) / 2 AS mq_a,
        round(2 * avg(score_b) FILTER (dimension = 'musicality' AND judge NOT LIKE 'scorer:%')) / 2 AS mq_b,
        round(2 * avg(score_a) FILTER (dimension = 'alignment' AND judge NOT LIKE 'scorer:%')) / 2 AS if_a,
        round(2 * avg(score_b) FILTER (dimension = 'alignment' AND judge NOT LIKE 'scorer:%')) / 2 AS if_b
    FROM answered
    GROUP BY pair_id
) USING (pair_id)
WHERE reason IS NULL AND split = $split
ORDER BY pair_id
