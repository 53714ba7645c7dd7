-- Grain: one row a rated clip with audio.
SELECT
    sample_id AS id,
    split,
    [$ask || E'\nClip: ', ''] AS prompt,
    [clip_sha256] AS audios,
    mos,
    (mos - scale_min) / (scale_max - scale_min) AS mos_of_scale,
    dataset
FROM ratings
WHERE clip_sha256 IS NOT NULL
