-- Grain: one row a sample and language: does the clip follow the instruction? Samples of one pair are drawn together.
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
    pair_id AS cluster
FROM samples
JOIN (
    SELECT instruction_id, language, list(question ORDER BY item) AS questions
    FROM items
    GROUP BY ALL
) USING (instruction_id, language)
