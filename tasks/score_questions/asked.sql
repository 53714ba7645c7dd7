-- Grain: one row a question, as a model is asked it. Questions about one picture are drawn together.
SELECT
    question_id AS id,
    split,
    truth_letter AS target,
    image_sha256 AS cluster,
    question,
    options,
    image AS score_image,
    category,
    subcategory,
    difficulty,
    preference
FROM questions
