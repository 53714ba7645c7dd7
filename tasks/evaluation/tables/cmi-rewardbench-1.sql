-- Grain: one row a statistic, a column for each set of CMI-RewardBench's Table 1.
WITH held AS (
    SELECT
        task,
        text IS NOT NULL AS with_text,
        nullif(lyrics, '') IS NOT NULL AS with_lyrics,
        reference_clip,
        CASE WHEN modality <> 'none' OR source_prompt_id IS NOT NULL THEN prompt_id END AS prompt_id,
        [clip_a, clip_b] AS clips,
        comparisons.votes AS samples
    FROM comparisons
    UNION ALL
    SELECT DISTINCT ON (source, clip_id) task, text IS NOT NULL, false, NULL, prompt_id, [clip_id], 1 FROM ratings
),

counted AS (
    SELECT
        task,
        bool_or(with_text) AS with_text,
        bool_or(with_lyrics) AS with_lyrics,
        bool_or(reference_clip IS NOT NULL) AS with_audio,
        sum(samples)::BIGINT AS samples,
        nullif(count(DISTINCT prompt_id), 0) AS prompts
    FROM held
    WHERE task IN ('pam', 'musiceval', 'music-arena', 'cmi-pref')
    GROUP BY task
),

tested AS (
    SELECT task, count(DISTINCT coalesce(vote_id, comparison_id, clip_a)) AS tested FROM benchmark GROUP BY task
),

heard AS (
    SELECT DISTINCT task, clip_id, kind
    FROM (
        SELECT task, unnest(clips) AS clip_id, 'generation' AS kind FROM held
        UNION ALL
        SELECT task, reference_clip, 'reference' FROM held WHERE reference_clip IS NOT NULL
    )
),

hours AS (
    SELECT task, kind, CASE WHEN count(*) = count(duration_s) THEN sum(duration_s) / 3600 END AS hours
    FROM heard
    JOIN clips USING (clip_id)
    GROUP BY task, kind
),

made AS (
    SELECT task, count(DISTINCT model) AS models
    FROM (
        SELECT task, unnest([
            comparisons.model_a, comparisons.model_b, cast_vote.model_a, cast_vote.model_b
        ]) AS model
        FROM comparisons JOIN votes AS cast_vote USING (comparison_id)
        UNION ALL
        SELECT task, system FROM ratings
    )
    GROUP BY task
),

listed AS (
    SELECT task, unnest([
        {'place': 1, 'name': 'Text condition', 'value': if(with_text, 'yes', 'no')},
        {'place': 2, 'name': 'Lyrics condition', 'value': if(with_lyrics, 'yes', 'no')},
        {'place': 3, 'name': 'Audio condition', 'value': if(with_audio, 'yes', 'no')},
        {'place': 4, 'name': '#Samples', 'value': format('{:,}', samples)},
        {'place': 5, 'name': '#Testing samples', 'value': format('{:,}', tested)},
        {'place': 6, 'name': '#Duration of audio (hours)', 'value': format('{:.2f}', generated.hours)},
        {'place': 7, 'name': '#Duration of reference audio (hours)', 'value': format('{:.2f}', reference.hours)},
        {'place': 8, 'name': '#Unique prompts', 'value': format('{:,}', prompts)},
        {'place': 9, 'name': '#Models & APIs', 'value': format('{:,}', models)}
    ], recursive := true)
    FROM counted
    LEFT JOIN tested USING (task)
    LEFT JOIN made USING (task)
    LEFT JOIN hours AS generated ON generated.task = counted.task AND generated.kind = 'generation'
    LEFT JOIN hours AS reference ON reference.task = counted.task AND reference.kind = 'reference'
)

SELECT
    name AS "Data set",
    any_value(value) FILTER (task = 'pam') AS "PAM",
    any_value(value) FILTER (task = 'musiceval') AS "MusicEval",
    any_value(value) FILTER (task = 'music-arena') AS "Music Arena",
    any_value(value) FILTER (task = 'cmi-pref') AS "CMI-Pref"
FROM listed
GROUP BY place, name
ORDER BY place
