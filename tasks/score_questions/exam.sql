-- Grain: one row a question as an exam puts it: its image, the question, the options, and the letter as the answer.
SELECT
    question_id AS id,
    split,
    [image.path] AS images,
    concat(
        question,
        chr(10),
        list_aggregate(
            list_transform(options, lambda text, place: concat(chr(64 + place::INTEGER), '. ', text)),
            'string_agg',
            chr(10)
        ),
        chr(10),
        'Answer with the letter alone.'
    ) AS prompt,
    truth_letter AS completion,
    truth_letter,
    category,
    subcategory,
    difficulty
FROM questions
