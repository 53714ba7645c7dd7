-- Grain: one row a question, as a model is asked it.
SELECT
    question_id AS id,
    split,
    truth_letter AS target,
    question,
    options,
    image AS score_image,
    category,
    subcategory,
    difficulty,
    preference
FROM questions
