-- Grain: one row a thread with enough comments, with its comments and the names of all who wrote in it
WITH firsts AS (
    SELECT
        submission,
        list({'id': id, 'author': author, 'text': text, 'score': score} ORDER BY score DESC, id) AS comments
    FROM first_comments
    GROUP BY submission
    HAVING count(*) >= getvariable('least_comments')
),
names AS (
    SELECT submission, list(DISTINCT author ORDER BY author) AS names
    FROM dump_rows
    WHERE author IS NOT NULL AND submission IS NOT NULL
    GROUP BY submission
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
    firsts.comments
FROM candidates
JOIN firsts ON firsts.submission = candidates.id
LEFT JOIN names ON names.submission = candidates.id
ORDER BY left(sha256(getvariable('salt') || chr(0) || 'thread' || chr(0) || candidates.id), 16)
