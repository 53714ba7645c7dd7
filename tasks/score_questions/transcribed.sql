-- Grain: one row a question whose image was brought in the form $form, as a model is asked it without the image.
SELECT
    questions.question_id AS id,
    questions.split,
    questions.truth_letter AS target,
    questions.question,
    questions.options,
    transcripts.text AS transcript,
    questions.category,
    questions.subcategory,
    questions.difficulty,
    questions.preference
FROM questions
INNER JOIN transcripts ON questions.question_id = transcripts.question_id AND transcripts.form = $form
