-- Grain: one row a subcategory of questions
SELECT
    category,
    subcategory,
    count(*) AS questions,
    count(*) FILTER (difficulty = 'easy') AS easy,
    count(*) FILTER (difficulty = 'medium') AS medium,
    count(*) FILTER (difficulty = 'hard') AS hard,
    avg((preference = 'human')::INT) AS human
FROM questions
GROUP BY ALL
ORDER BY category, subcategory
