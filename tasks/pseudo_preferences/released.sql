-- Grain: one row a label, as CMI-Pref-Pseudo is released.
SELECT
    labels.pair_id AS id,
    labels.split,
    a.clip_sha256 AS a_audio,
    b.clip_sha256 AS b_audio,
    text,
    lyrics,
    labels.prompt_id,
    reference_sha256 AS reference_audio,
    CASE musicality WHEN 'tie' THEN 'both' ELSE 'model_' || musicality END AS musicality,
    confidence_musicality,
    CASE alignment WHEN 'tie' THEN 'both' ELSE 'model_' || alignment END AS alignment,
    confidence_alignment,
    mq_a,
    mq_b,
    if_a,
    if_b,
    labels.model_a,
    labels.model_b,
    judge AS source
FROM labels
JOIN pairs USING (pair_id)
JOIN clips AS a ON a.generation_id = labels.generation_a
JOIN clips AS b ON b.generation_id = labels.generation_b
ORDER BY labels.pair_id
