-- Grain: one row a pair of clips; the clip with the higher MOS is chosen. Clips are null where the build read no audio.
SELECT
    pairs.pair_id AS id,
    pairs.split,
    $question AS prompt,
    chosen.clip_sha256 AS chosen_audio,
    rejected.clip_sha256 AS rejected_audio,
    pairs.mos_gap_normalized AS preference_margin,
    pairs.chosen_better_probability,
    pairs.chosen_mos,
    pairs.rejected_mos,
    pairs.dataset,
    pairs.category
FROM pairs
JOIN ratings AS chosen ON chosen.sample_id = pairs.chosen_id
JOIN ratings AS rejected ON rejected.sample_id = pairs.rejected_id
