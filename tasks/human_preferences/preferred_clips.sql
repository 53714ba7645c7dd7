-- Grain: one row a comparison with a preferred clip on $dimension; ties are not in it.
SELECT
    preferences.preference_id AS id,
    preferences.split,
    coalesce(concat_ws(E'\n\nLyrics:\n', comparisons.text, comparisons.lyrics), '') AS prompt,
    CASE WHEN reference.clip_sha256 IS NULL THEN [] ELSE [reference.clip_sha256] END AS audios,
    chosen.clip_sha256 AS chosen_audio,
    rejected.clip_sha256 AS rejected_audio,
    chosen.model AS chosen_model,
    rejected.model AS rejected_model,
    comparisons.modality,
    preferences.confidence
FROM preferences
JOIN comparisons USING (comparison_id)
JOIN clips AS chosen ON chosen.clip_id = CASE preference WHEN 'a' THEN clip_a ELSE clip_b END
JOIN clips AS rejected ON rejected.clip_id = CASE preference WHEN 'a' THEN clip_b ELSE clip_a END
LEFT JOIN clips AS reference ON reference.clip_id = comparisons.reference_clip
WHERE dimension = $dimension
    AND preference IN ('a', 'b')
    AND chosen.clip_sha256 IS NOT NULL
    AND rejected.clip_sha256 IS NOT NULL
