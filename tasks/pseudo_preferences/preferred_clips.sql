-- Grain: one row a label that prefers a clip on $dimension; ties are not in it.
SELECT
    labels.pair_id AS id,
    labels.split,
    concat_ws(E'\n\nLyrics:\n', pairs.text, pairs.lyrics) AS prompt,
    CASE WHEN pairs.reference_sha256 IS NULL THEN [] ELSE [pairs.reference_sha256] END AS audios,
    chosen.clip_sha256 AS chosen_audio,
    rejected.clip_sha256 AS rejected_audio,
    chosen.model AS chosen_model,
    rejected.model AS rejected_model,
    labels.modality,
    labels.judge
FROM (SELECT *, CASE $dimension WHEN 'musicality' THEN musicality ELSE alignment END AS choice FROM labels) AS labels
JOIN pairs USING (pair_id)
JOIN clips AS chosen ON chosen.generation_id = CASE choice WHEN 'a' THEN labels.generation_a ELSE labels.generation_b END
JOIN clips AS rejected
    ON rejected.generation_id = CASE choice WHEN 'a' THEN labels.generation_b ELSE labels.generation_a END
WHERE choice IN ('a', 'b')
