-- Grain: one row an answer: pair, order, dimension; the published table `judgments`.
SELECT
    pair_id,
    pairs.split,
    "order",
    dimension,
    choice,
    position,
    confidence,
    score_a,
    score_b,
    reason,
    judge,
    prompt,
    request_key,
    notes
FROM answered
JOIN pairs USING (pair_id)
WHERE pairs.split = $split
ORDER BY pair_id, "order", dimension, judge
