-- Grain: one row a vote, comparison or rated clip of the benchmark, with what is known of it in every dimension.
--
-- A mean confidence goes to the next half step away from 3, so that it stays in its band; a month to its first day.
WITH samples AS (
    SELECT
        coalesce(benchmark.vote_id, comparisons.comparison_id, benchmark.task || '/' || benchmark.clip_a) AS id,
        benchmark.* EXCLUDE (confidence),
        coalesce(benchmark.confidence, preferences.confidence) AS confidence,
        cast_vote.annotator,
        cast_vote.date AS day,
        coalesce(cast_vote.model_a, comparisons.model_a) AS model_a,
        coalesce(cast_vote.model_b, comparisons.model_b) AS model_b,
        coalesce(comparisons.source_prompt_id, ratings.source_prompt_id) AS prompt_id
    FROM benchmark
    LEFT JOIN preferences ON preferences.preference_id = sample_id
    LEFT JOIN comparisons
        ON comparisons.comparison_id = coalesce(benchmark.comparison_id, preferences.comparison_id)
    LEFT JOIN votes AS cast_vote ON cast_vote.vote_id = benchmark.vote_id
    LEFT JOIN ratings ON ratings.rating_id = sample_id
),

once AS (
    SELECT
        id,
        first(split) AS split,
        first(task) AS task,
        first(text) AS text,
        first(lyrics) AS lyrics,
        first(reference_clip) AS reference_clip,
        first(clip_a) AS clip_a,
        first(clip_b) AS clip_b,
        first(coalesce(model_a, system)) AS model_a,
        first(model_b) AS model_b,
        first(prompt_id) AS prompt_id,
        first(annotator) AS annotator,
        first(coalesce(day, month || '-01')) AS date,
        first('model_' || preference) FILTER (dimension = 'musicality') AS musicality,
        first('model_' || preference) FILTER (dimension = 'alignment') AS alignment,
        first('model_' || preference) FILTER (dimension = 'overall') AS overall,
        first(confidence) FILTER (dimension = 'musicality') AS sure_musicality,
        first(confidence) FILTER (dimension = 'alignment') AS sure_alignment,
        first(score) FILTER (dimension = 'musicality') AS rated_musicality,
        first(score) FILTER (dimension = 'alignment') AS rated_alignment
    FROM samples
    GROUP BY id
)

SELECT
    id,
    once.split,
    CASE task WHEN 'pam' THEN 'PAM' WHEN 'musiceval' THEN 'MusicEval' WHEN 'music-arena' THEN 'Music Arena'
        ELSE 'cmi-arena-annotation' END AS source,
    text,
    lyrics,
    prompt_id,
    model_a,
    model_b,
    annotator,
    date,
    musicality,
    CASE WHEN sure_musicality > 3 THEN ceil(2 * sure_musicality) ELSE floor(2 * sure_musicality) END / 2
        AS confidence_musicality,
    alignment,
    CASE WHEN sure_alignment > 3 THEN ceil(2 * sure_alignment) ELSE floor(2 * sure_alignment) END / 2
        AS confidence_alignment,
    overall,
    rated_musicality,
    rated_alignment,
    a.clip_sha256 AS a_audio,
    b.clip_sha256 AS b_audio,
    reference.clip_sha256 AS reference_audio
FROM once
JOIN clips AS a ON a.clip_id = clip_a
LEFT JOIN clips AS b ON b.clip_id = clip_b
LEFT JOIN clips AS reference ON reference.clip_id = reference_clip
