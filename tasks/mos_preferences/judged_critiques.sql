-- Grain: one row a clip that was described: does the description say what is heard? A critique claims that it does.
SELECT
    sample_id AS id,
    split,
    true AS target,
    clip_sha256 AS clip_audio,
    concat_ws(
        E'\n', 'Noise: ' || noise, 'Distortion: ' || distortion, 'Naturalness: ' || naturalness,
        'Continuity: ' || continuity, E'\n' || free_text
    ) AS critique,
    dataset,
    model
FROM critiques
