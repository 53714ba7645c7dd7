-- Grain: one row a number of options and a letter that is right
WITH counted AS (
    SELECT len(options) AS options, truth_letter, count(*) AS right_here FROM questions GROUP BY ALL
)

SELECT
    options,
    truth_letter,
    right_here,
    right_here / sum(right_here) OVER (PARTITION BY options) AS share,
    1 / options AS by_chance
FROM counted
ORDER BY options, truth_letter
