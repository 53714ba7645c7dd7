-- Grain: one row a thread with enough comments, with its comments and the names of all who wrote in it
WITH said AS (
    SELECT submission, list({'id': id, 'author': author, 'text': text, 'score': score}) AS comments
    FROM answers
    GROUP BY submission
),
names AS (
    SELECT submission, list(author) AS names FROM writers SEMI JOIN said USING (submission) GROUP BY submission
)
SELECT
    candidates.id,
    candidates.author,
    candidates.subreddit,
    candidates.created_year AS year,
    candidates.title,
    candidates.text,
    candidates.words,
    candidates.image_from,
    coalesce(names.names, []) AS names,
    said.comments
FROM candidates
JOIN said ON said.submission = candidates.id
LEFT JOIN names ON names.submission = candidates.id
ORDER BY left(sha256(getvariable('salt') || chr(0) || 'thread' || chr(0) || candidates.id), 16)
