-- Grain: one row a clip of one split that was described; the published table `critiques`.
SELECT
    questions.item AS sample_id,
    questions.dataset,
    questions.split,
    questions.first_sha256 AS clip_sha256,
    questions.first_duration_s AS duration_s,
    questions.first_mos AS mos,
    said.noise,
    said.distortion,
    said.naturalness,
    said.continuity,
    $model AS model,
    $prompt AS prompt,
    said.request_key,
    said.tries,
    said.notes
FROM questions
JOIN said USING (kind, item)
WHERE kind = 'single' AND split = $split AND reason IS NULL
ORDER BY item
