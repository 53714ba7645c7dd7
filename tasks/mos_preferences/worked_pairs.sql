-- Grain: one row a pair of each source: those with the largest, the middle and the smallest gap, with files and votes.
WITH ranked AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY dataset ORDER BY mos_gap DESC, pair_id) AS place,
        count(*) OVER (PARTITION BY dataset) AS pairs
    FROM pairs
)

SELECT
    ranked.dataset,
    chosen.file AS chosen_file,
    chosen.mos AS chosen_mos,
    chosen.votes AS chosen_votes,
    rejected.file AS rejected_file,
    rejected.mos AS rejected_mos,
    rejected.votes AS rejected_votes
FROM ranked
JOIN ratings AS chosen ON chosen.sample_id = chosen_id
JOIN ratings AS rejected ON rejected.sample_id = rejected_id
WHERE place IN (1, 1 + pairs // 2, pairs)
ORDER BY ranked.dataset, place
