-- Grain: one row a clip that was described: hear it, write the four parts.
SELECT
    sample_id AS id,
    split,
    [$ask || E'\nClip: ', ''] AS prompt,
    [clip_sha256] AS audios,
    concat_ws(
        E'\n', 'Noise: ' || noise, 'Distortion: ' || distortion, 'Naturalness: ' || naturalness,
        'Continuity: ' || continuity
    ) AS completion,
    mos,
    dataset,
    model
FROM critiques
