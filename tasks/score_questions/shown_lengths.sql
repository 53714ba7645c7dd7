-- Grain: one row a number of options
WITH counted AS (
    SELECT
        question_id,
        count(*) AS options,
        max(words) FILTER (correct) > max(words) FILTER (NOT correct) AS longest,
        max(words) FILTER (correct) < min(words) FILTER (NOT correct) AS shortest
    FROM options
    GROUP BY question_id
)

SELECT
    options,
    count(*) AS questions,
    avg(longest::INT) AS longest,
    avg(shortest::INT) AS shortest,
    1 / options AS by_chance
FROM counted
GROUP BY options
ORDER BY options
