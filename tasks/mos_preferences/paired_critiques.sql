-- Grain: one row a pair of one split whose scores agree with the listeners; the published table `paired_critiques`.
SELECT
    questions.item AS pair_id,
    questions.dataset,
    questions.split,
    questions.first_id,
    questions.second_id,
    questions.first_sha256,
    questions.second_sha256,
    questions.better,
    questions.first_mos,
    questions.second_mos,
    questions.mos_gap_normalized,
    answers.rationale,
    answers.first_score,
    answers.second_score,
    $model AS model,
    $prompt AS prompt,
    answers.request_key,
    answers.tries,
    answers.notes
FROM questions
JOIN answers USING (kind, item)
WHERE kind = 'paired' AND split = $split
ORDER BY item
