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
    said.rationale,
    said.first_score,
    said.second_score,
    $model AS model,
    $prompt AS prompt,
    said.request_key,
    said.tries,
    said.notes
FROM questions
JOIN said USING (kind, item)
WHERE kind = 'paired' AND split = $split AND reason IS NULL
ORDER BY item
