-- Grain: one row a stratum: prompts wanted, triplets to draw from, prompts written, and triplets of these that were kept.
SELECT
    strata.stratum,
    wanted,
    candidates,
    count(answered.triplet_id) AS written,
    count(answered.triplet_id) FILTER (WHERE queue.kept) AS kept
FROM strata
LEFT JOIN queue USING (stratum)
LEFT JOIN answered USING (triplet_id)
GROUP BY ALL
ORDER BY strata.stratum DESC
