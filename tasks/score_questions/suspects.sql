-- Grain: one row a text of a thread with enough comments that scrubbing may alter: it matches the hint, or holds a name;
-- with the names of all who wrote in its thread, and the ids of its parts that could be nothing else in a text
WITH threads AS (
    SELECT id, author, title, text FROM candidates SEMI JOIN answers ON answers.submission = candidates.id
),
people AS (
    SELECT submission, author AS name FROM writers SEMI JOIN threads ON threads.id = writers.submission
    UNION
    SELECT id, author FROM threads WHERE author IS NOT NULL
),
ids AS (
    SELECT id AS submission, id AS name FROM threads
    UNION
    SELECT submission, id FROM answers
),
names AS (
    SELECT submission, list(name ORDER BY name) AS names
    FROM (
        SELECT * FROM people WHERE NOT list_contains(getvariable('nobody'), lower(name))
        UNION
        SELECT * FROM ids WHERE length(name) >= 5 AND regexp_matches(name, '[0-9]')
    )
    GROUP BY submission
),
texts AS (
    SELECT id AS submission, 'title' AS part, title AS text FROM threads
    UNION ALL
    SELECT id, 'text', text FROM threads
    UNION ALL
    SELECT submission, 'comment ' || id, text FROM answers
)
SELECT submission, part, text, coalesce(names, []) AS names
FROM texts
LEFT JOIN names USING (submission)
WHERE
    regexp_matches(text, getvariable('hint'))
    OR len(list_filter(names, lambda name: contains(lower(text), lower(name)))) > 0
