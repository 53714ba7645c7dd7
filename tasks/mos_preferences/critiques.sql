-- Grain: one row a clip of one split that was described; the published table `critiques`.
SELECT
    questions.item AS sample_id,
    questions.dataset,
    questions.split,
    questions.first_sha256 AS clip_sha256,
    questions.first_duration_s AS duration_s,
    questions.first_mos AS mos,
    answers.noise,
    answers.distortion,
    answers.naturalness,
    answers.continuity,
    $model AS model,
    $prompt AS prompt,
    answers.request_key,
    answers.tries,
    answers.notes,
    answers.free_text
FROM questions
JOIN answers USING (kind, item)
WHERE kind = 'single' AND split = $split
ORDER BY item
