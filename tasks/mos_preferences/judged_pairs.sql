-- Grain: one row a pair of clips; the chosen one is preferred. Clips are null without audio.
--
-- Which of the two a model is shown first follows from a hash of the pair.
SELECT
    pairs.pair_id AS id,
    pairs.split,
    'chosen' AS target,
    pairs.chosen_id AS a_clip,
    pairs.rejected_id AS b_clip,
    chosen.clip_sha256 AS a_audio,
    rejected.clip_sha256 AS b_audio,
    substr(md5(pair_id || ' first'), 1, 1) >= '8' AS swapped,
    pairs.dataset,
    pairs.category,
    CASE WHEN pairs.mos_gap < 0.2 THEN '< 0.2' WHEN pairs.mos_gap <= 0.5 THEN '0.2 to 0.5' ELSE '> 0.5' END AS gap,
    pairs.gap_decile,
    CASE
        WHEN greatest(chosen.duration_s, rejected.duration_s) < 10 THEN '0 to 10 s' WHEN greatest(chosen.duration_s, rejected.duration_s) < 30 THEN '10 to 30 s' WHEN greatest(chosen.duration_s, rejected.duration_s) >= 30 THEN '30 s and more'
    END AS length,
    ntile(10) OVER (PARTITION BY pairs.split ORDER BY pairs.mos_gap, pairs.pair_id) AS gap_decile_of_split
FROM pairs
JOIN ratings AS chosen ON chosen.sample_id = pairs.chosen_id
JOIN ratings AS rejected ON rejected.sample_id = pairs.rejected_id
