-- Grain: one row a pair of clips; the chosen one is preferred. Clips are null without audio.
--
-- `gap` is of a 1-to-5 scale, rounded, since differences of means miss an edge by their last bit. Which of the two a model is shown first follows from a hash of the pair.
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
    round(pairs.mos_gap * 4 / (chosen.scale_max - chosen.scale_min), 6) AS gap_of_five,
    CASE WHEN gap_of_five < 0.2 THEN '< 0.2' WHEN gap_of_five <= 0.5 THEN '0.2 to 0.5' ELSE '> 0.5' END AS gap,
    pairs.gap_decile,
    CASE
        WHEN greatest(chosen.duration_s, rejected.duration_s) < 10 THEN '0 to 10 s' WHEN greatest(chosen.duration_s, rejected.duration_s) < 30 THEN '10 to 30 s' WHEN greatest(chosen.duration_s, rejected.duration_s) >= 30 THEN '30 s and more'
    END AS length
FROM pairs
JOIN ratings AS chosen ON chosen.sample_id = pairs.chosen_id
JOIN ratings AS rejected ON rejected.sample_id = pairs.rejected_id
