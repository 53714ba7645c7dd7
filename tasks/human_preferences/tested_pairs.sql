-- Grain: one row a pair of the benchmark, of $task on $dimension, in the benchmark's letters.
--
-- CMI-Pref writes "" as the lyrics of a piece in which nothing is to be sung. In versions of before, whose samples are
-- comparisons, neither `vocals` nor `comparison_id` says so.
-- Which clip a model is shown first goes by the hash of the comparison, so that position tells nothing and a model is
-- asked once about a comparison, however many votes there are on it.
SELECT
    sample_id AS id,
    benchmark.split,
    benchmark.preference AS target,
    benchmark.text,
    benchmark.lyrics,
    reference.clip_sha256 AS reference_audio,
    benchmark.clip_a AS a_clip,
    benchmark.clip_b AS b_clip,
    a.clip_sha256 AS a_audio,
    b.clip_sha256 AS b_audio,
    md5_number_lower(concat(comparisons.comparison_id, '-', benchmark.dimension)) % 2 = 0 AS swapped,
    benchmark.modality,
    CASE WHEN benchmark.reference_clip IS NULL THEN 'without' ELSE 'with' END AS reference,
    coalesce(benchmark.vocals, CASE WHEN benchmark.task = 'cmi-pref' THEN 'instrumental' END) AS vocals,
    benchmark.confidence_band,
    benchmark.month,
    [coalesce(cast_vote.model_a, comparisons.model_a), coalesce(cast_vote.model_b, comparisons.model_b)] AS model,
    nullif(array_to_string(list_sort(
        [coalesce(cast_vote.model_a, comparisons.model_a), coalesce(cast_vote.model_b, comparisons.model_b)]), ' vs '), '')
        AS models,
    CASE WHEN benchmark.vote_id IS NULL THEN voters.annotator ELSE [cast_vote.annotator] END AS annotator,
    greatest(a.duration_s, b.duration_s) AS duration_s,
    CASE
        WHEN greatest(a.duration_s, b.duration_s) < 10 THEN '0 to 10 s' WHEN greatest(a.duration_s, b.duration_s) < 30 THEN '10 to 30 s' WHEN greatest(a.duration_s, b.duration_s) >= 30 THEN '30 s and more'
    END AS length,
    comparisons.prompt_id AS cluster
FROM benchmark
LEFT JOIN preferences ON preferences.preference_id = sample_id
JOIN comparisons ON comparisons.comparison_id = coalesce(benchmark.comparison_id, preferences.comparison_id)
JOIN clips AS a ON a.clip_id = benchmark.clip_a
JOIN clips AS b ON b.clip_id = benchmark.clip_b
LEFT JOIN votes AS cast_vote ON cast_vote.vote_id = benchmark.vote_id
LEFT JOIN (
    SELECT comparison_id, list(DISTINCT annotator ORDER BY annotator) AS annotator FROM votes GROUP BY comparison_id
) AS voters ON voters.comparison_id = comparisons.comparison_id
LEFT JOIN clips AS reference ON reference.clip_id = benchmark.reference_clip
WHERE benchmark.task = $task AND benchmark.dimension = $dimension
