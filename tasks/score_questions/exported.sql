-- Grain: one row a question with its image's name and its options by letter, as JSON text.
SELECT
    question_id AS id,
    split,
    image.path AS image,
    question,
    to_json(
        map_from_entries(list_transform(options, lambda text, place: {'key': chr(64 + place::INTEGER), 'value': text}))
    )::VARCHAR AS final_options,
    truth_letter,
    category,
    subcategory,
    difficulty,
    preference
FROM questions
