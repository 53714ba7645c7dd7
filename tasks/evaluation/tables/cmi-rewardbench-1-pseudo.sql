-- Grain: one row a statistic; the column CMI-Pref-Pseudo of CMI-RewardBench's Table 1.
WITH held AS (
    SELECT
        bool_or(modality LIKE '%text%') AS with_text,
        bool_or(modality LIKE '%lyrics%') AS with_lyrics,
        bool_or(modality LIKE '%audio%') AS with_audio,
        count(*) FILTER (musicality IS NOT NULL AND alignment IS NOT NULL) AS samples,
        count(*) FILTER (musicality IS NOT NULL AND alignment IS NOT NULL AND split = 'test') AS tested
    FROM labels
),

made AS (
    SELECT
        sum(duration_s) / 3600 AS hours,
        count(DISTINCT prompt_id) AS prompts,
        count(DISTINCT model) AS models
    FROM clips
)

SELECT unnest([
    {'Data set': 'Text condition', 'CMI-Pref-Pseudo': if(with_text, 'yes', 'no')},
    {'Data set': 'Lyrics condition', 'CMI-Pref-Pseudo': if(with_lyrics, 'yes', 'no')},
    {'Data set': 'Audio condition', 'CMI-Pref-Pseudo': if(with_audio, 'yes', 'no')},
    {'Data set': '#Samples', 'CMI-Pref-Pseudo': format('{:,}', samples)},
    {'Data set': '#Testing samples', 'CMI-Pref-Pseudo': format('{:,}', nullif(tested, 0))},
    {'Data set': '#Duration of audio (hours)', 'CMI-Pref-Pseudo': format('{:.2f}', hours)},
    {'Data set': '#Duration of reference audio (hours)', 'CMI-Pref-Pseudo': NULL},
    {'Data set': '#Unique prompts', 'CMI-Pref-Pseudo': format('{:,}', prompts)},
    {'Data set': '#Models & APIs', 'CMI-Pref-Pseudo': format('{:,}', models)}
], recursive := true)
FROM held, made
WHERE samples > 0
