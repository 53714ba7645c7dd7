-- Grain: one row a source with votes (and all): how much there is of what CMI-Pref's first table counts.
--
-- Prompts count that have words, lyrics, a reference or an id. A generation is a clip that was compared; hours are of
-- clips that were measured, each once.
WITH compared AS (
    SELECT *, unnest(['all', source]) AS scope FROM comparisons
),

clips_of AS (
    SELECT DISTINCT scope, unnest([clip_a, clip_b]) AS clip_id, 'generation' AS kind FROM compared
    UNION ALL
    SELECT DISTINCT scope, reference_clip, 'reference' FROM compared WHERE reference_clip IS NOT NULL
),

heard AS (
    SELECT
        scope,
        count(*) FILTER (kind = 'generation') AS generations,
        sum(duration_s) FILTER (kind = 'generation') / 3600 AS generated_h,
        sum(duration_s) FILTER (kind = 'reference') / 3600 AS reference_h
    FROM clips_of JOIN clips USING (clip_id)
    GROUP BY scope
),

made AS (
    SELECT scope, count(DISTINCT model) AS models
    FROM (
        SELECT scope, unnest([compared.model_a, compared.model_b, cast_vote.model_a, cast_vote.model_b]) AS model
        FROM compared JOIN votes AS cast_vote USING (comparison_id)
    )
    GROUP BY scope
),

cast_by AS (
    SELECT scope, count(*) AS votes, count(DISTINCT annotator) AS annotators
    FROM (SELECT annotator, unnest(['all', source]) AS scope FROM votes)
    GROUP BY scope
)

SELECT
    scope,
    any_value(cast_by.votes) AS votes,
    count(*) AS pairs,
    count(*) FILTER (compared.votes > 1) AS pairs_of_several,
    coalesce(sum(compared.votes) FILTER (compared.votes > 1), 0)::BIGINT AS votes_of_several,
    count(DISTINCT prompt_id) FILTER (modality <> 'none' OR source_prompt_id IS NOT NULL) AS prompts,
    any_value(generations) AS generations,
    any_value(models) AS models,
    any_value(annotators) AS annotators,
    any_value(generated_h) AS generated_h,
    any_value(reference_h) AS reference_h
FROM compared
JOIN heard USING (scope)
JOIN made USING (scope)
JOIN cast_by USING (scope)
GROUP BY scope
ORDER BY scope <> 'all', scope
