-- Grain: one row a clip that was described: hear it, write the four parts, and free text where there is some.
SELECT
    sample_id AS id,
    split,
    [$ask || if(free_text IS NULL, '', E'\n' || $free) || E'\nClip: ', ''] AS prompt,
    [clip_sha256] AS audios,
    concat_ws(
        E'\n', 'Noise: ' || noise, 'Distortion: ' || distortion, 'Naturalness: ' || naturalness,
        'Continuity: ' || continuity, E'\n' || free_text
    ) AS completion,
    mos,
    dataset,
    model,
    {
        'prompt': if(free_text IS NULL, 'speech-critique', 'speech-critique-free'), 'clips': ['clip']
    } AS wording
FROM critiques
