-- Grain: one row a rated clip of the benchmark, of $task on $dimension.
SELECT
    sample_id AS id,
    benchmark.split,
    benchmark.score AS target,
    benchmark.text,
    benchmark.clip_a AS clip,
    clips.clip_sha256 AS audio,
    benchmark.system,
    clips.duration_s,
    CASE
        WHEN clips.duration_s < 10 THEN '0 to 10 s' WHEN clips.duration_s < 30 THEN '10 to 30 s' WHEN clips.duration_s >= 30 THEN '30 s and more'
    END AS length,
    ratings.prompt_id AS cluster
FROM benchmark
JOIN clips ON clips.clip_id = benchmark.clip_a
JOIN ratings ON ratings.rating_id = sample_id
WHERE benchmark.task = $task AND benchmark.dimension = $dimension
