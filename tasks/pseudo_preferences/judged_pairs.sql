-- Grain: one row a label on $dimension: a pair of generations, and which is preferred.
SELECT
    labels.pair_id AS id,
    labels.split,
    CASE $dimension WHEN 'musicality' THEN labels.musicality ELSE labels.alignment END AS target,
    pairs.text,
    coalesce(pairs.lyrics, '') AS lyrics,
    pairs.reference_sha256 AS reference_audio,
    labels.generation_a AS a_clip,
    labels.generation_b AS b_clip,
    a.clip_sha256 AS a_audio,
    b.clip_sha256 AS b_audio,
    pairs.modality,
    pairs.vocals,
    least(labels.model_a, labels.model_b) || ' vs ' || greatest(labels.model_a, labels.model_b) AS models,
    [labels.model_a, labels.model_b] AS model,
    CASE
        WHEN greatest(a.duration_s, b.duration_s) < 10 THEN '0 to 10 s' WHEN greatest(a.duration_s, b.duration_s) < 30 THEN '10 to 30 s' WHEN greatest(a.duration_s, b.duration_s) >= 30 THEN '30 s and more'
    END AS length,
    labels.prompt_id AS cluster
FROM labels
JOIN pairs USING (pair_id)
JOIN clips AS a ON a.generation_id = labels.generation_a
JOIN clips AS b ON b.generation_id = labels.generation_b
WHERE target IS NOT NULL
