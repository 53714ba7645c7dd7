-- Grain: one row a sample and language: does the clip follow the instruction? Samples of one pair are dependent.
SELECT
    sample_id || '-' || language AS id,
    split,
    follows AS target,
    clip_sha256 AS clip_audio,
    instruction,
    questions,
    language,
    subset,
    domain,
    kind,
    CASE WHEN generated THEN coalesce(generator, 'not known') END AS generator,
    CASE
        WHEN duration_s < 10 THEN '0 to 10 s' WHEN duration_s < 30 THEN '10 to 30 s' WHEN duration_s >= 30 THEN '30 s and more'
    END AS length,
    pair_id AS cluster
FROM samples
JOIN (
    SELECT  -- the items that are labelled; all of them in a bench without labels
        sample_id,
        language,
        coalesce(list(question ORDER BY item) FILTER (answer IS NOT NULL), list(question ORDER BY item)) AS questions
    FROM samples
    JOIN items USING (instruction_id, language)
    LEFT JOIN labels USING (sample_id, item, language)
    GROUP BY ALL
) USING (sample_id, language)
LEFT JOIN (SELECT clip_sha256, generated, generator, duration_s FROM clips) USING (clip_sha256)
