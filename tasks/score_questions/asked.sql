-- Grain: one row a question, as a model is asked it. Questions about one picture depend on each other; a released set
-- without its pictures has their names as `source`.
SELECT
    question_id AS id,
    split,
    truth_letter AS target,
    coalesce(image_sha256, source) AS cluster,
    question,
    options,
    image AS score_image,
    category,
    subcategory,
    difficulty,
    preference
FROM questions
