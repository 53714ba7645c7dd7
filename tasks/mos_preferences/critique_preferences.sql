-- Grain: one row a pair whose clips were both described; the clip with the higher MOS is chosen.
WITH described AS (
    SELECT
        sample_id,
        clip_sha256,
        mos,
        concat_ws(
            E'\n', 'Noise: ' || noise, 'Distortion: ' || distortion, 'Naturalness: ' || naturalness,
            'Continuity: ' || continuity, E'\n' || free_text
        ) AS critique
    FROM critiques
)

SELECT
    pairs.pair_id AS id,
    pairs.split,
    $ask AS prompt,
    chosen.clip_sha256 AS chosen_audio,
    rejected.clip_sha256 AS rejected_audio,
    chosen.critique AS chosen_critique,
    rejected.critique AS rejected_critique,
    pairs.mos_gap_normalized AS preference_margin,
    chosen.mos AS chosen_mos,
    rejected.mos AS rejected_mos,
    pairs.dataset
FROM pairs
JOIN described AS chosen ON chosen.sample_id = pairs.chosen_id
JOIN described AS rejected ON rejected.sample_id = pairs.rejected_id
