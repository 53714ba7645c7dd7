-- Grain: one row a sample and language, in the layout of AnyAudio-Judge's bench: caption, label, type, rubric.
SELECT
    sample_id || '-' || language AS id,
    split,
    sample_id AS uuid,
    language,
    clip_sha256 AS audio,
    instruction AS caption,
    if(follows, 'yes', 'no') AS label,
    CASE kind WHEN 'pos' THEN 'pos' WHEN 'perturb' THEN 'neg_change' ELSE 'neg_' || kind END AS type,
    subset,
    rubric
FROM samples
JOIN (
    SELECT
        instruction_id,
        language,
        list({'dimension': dimension, 'question': question, 'basis': basis} ORDER BY item) AS rubric
    FROM items
    GROUP BY ALL
) USING (instruction_id, language)
