-- Grain: one row a tested pair or rated clip, and a dimension; the published table `benchmark`.
--
-- CMI-RewardBench's tasks: CMI-Pref by dimension, Music Arena, PAM's two ratings and MusicEval's musicality.
SELECT
    sample_id,
    samples.split,
    comparison_id,
    vote_id,
    task,
    source,
    dimension,
    text,
    lyrics,
    reference_clip,
    clip_a,
    clip_b,
    preference,
    NULL::DOUBLE AS score,
    NULL AS system,
    modality,
    vocals,
    confidence,
    CASE WHEN confidence < 3 THEN '<3' WHEN confidence > 3 THEN '>3' WHEN confidence = 3 THEN '3' END
        AS confidence_band,
    month
FROM samples
JOIN comparisons USING (comparison_id)
WHERE preference <> 'tie' AND samples.split = 'test' AND task IN ('cmi-pref', 'music-arena')
UNION ALL
SELECT
    rating_id, split, NULL, NULL, task, source, dimension, text, NULL, NULL, clip_id, NULL, NULL, score, system,
    CASE WHEN text IS NULL THEN 'none' ELSE 'text' END, NULL, NULL, NULL, NULL
FROM ratings
WHERE split = 'test' AND (task = 'pam' OR (task = 'musiceval' AND dimension = 'musicality'))
ORDER BY task, dimension, sample_id
