-- Grain: one row a pair of the benchmark, of $task on $dimension.
--
-- Which clip stands as a goes by the hash of the id, so that position tells nothing.
SELECT
    sample_id AS id,
    benchmark.split,
    CASE WHEN swapped THEN CASE benchmark.preference WHEN 'a' THEN 'b' ELSE 'a' END ELSE benchmark.preference END AS target,
    benchmark.text,
    benchmark.lyrics,
    reference.clip_sha256 AS reference_audio,
    CASE WHEN swapped THEN b.clip_sha256 ELSE a.clip_sha256 END AS a_audio,
    CASE WHEN swapped THEN a.clip_sha256 ELSE b.clip_sha256 END AS b_audio,
    benchmark.modality,
    benchmark.vocals,
    benchmark.confidence_band,
    benchmark.month,
    comparisons.prompt_id AS cluster
FROM (SELECT *, md5_number_lower(sample_id) % 2 = 0 AS swapped FROM benchmark) AS benchmark
JOIN preferences ON preferences.preference_id = sample_id
JOIN comparisons ON comparisons.comparison_id = preferences.comparison_id
JOIN clips AS a ON a.clip_id = benchmark.clip_a
JOIN clips AS b ON b.clip_id = benchmark.clip_b
LEFT JOIN clips AS reference ON reference.clip_id = benchmark.reference_clip
WHERE benchmark.task = $task AND benchmark.dimension = $dimension
