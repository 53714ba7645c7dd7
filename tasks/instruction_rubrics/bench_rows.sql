-- Grain: one row a sample and language, in the layout of AnyAudio-Judge's bench: caption, label, type, rubric.
-- $rubric is the language of the questions; 'own' is that of the row.
SELECT
    samples.sample_id || '-' || samples.language AS id,
    split,
    samples.sample_id AS uuid,
    samples.language,
    clip_sha256 AS audio,
    instruction AS caption,
    if(follows, 'yes', 'no') AS label,
    CASE
        WHEN kind = 'perturb' THEN 'neg_change'
        WHEN kind = 'judged' THEN 'neg_gemini'
        WHEN kind = 'swap' THEN 'neg_swap'
        WHEN list_contains(verified, 'audio') THEN 'pos_gemini'
        WHEN list_contains(verified, 'similarity') THEN 'pos_clap'
        ELSE 'pos'
    END AS type,
    regexp_replace(replace(subset, '-gen', '_gen'), '-real$', '') AS subset,
    rubric
FROM samples
JOIN (
    SELECT
        labels.sample_id,
        labels.language,
        items.language AS asked_in,
        list({'dimension': dimension, 'question': question, 'basis': basis} ORDER BY item) AS rubric
    FROM labels
    JOIN samples USING (sample_id, language)
    JOIN items USING (instruction_id, item)
    GROUP BY ALL
) AS asked
    ON samples.sample_id = asked.sample_id AND samples.language = asked.language
    AND asked_in = if($rubric = 'own', samples.language, $rubric)
