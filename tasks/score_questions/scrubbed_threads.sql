-- Grain: one row a thread with enough comments, as `schemas.forum.THREADS`, by its key
WITH counted AS (
    SELECT submission, count(*) AS comments FROM answers GROUP BY submission
)
SELECT
    left(sha256(getvariable('salt') || chr(0) || 'thread' || chr(0) || id), 16) AS thread_key,
    CASE
        WHEN NOT list_contains(getvariable('nobody'), lower(author))
            THEN left(sha256(getvariable('salt') || chr(0) || 'author' || chr(0) || author), 16)
    END AS author_key,
    subreddit,
    created_year AS year,
    coalesce(titles.text, candidates.title) AS title,
    coalesce(texts.text, candidates.text) AS text,
    words,
    comments,
    image_from
FROM candidates
JOIN counted ON counted.submission = candidates.id
LEFT JOIN scrubbed AS titles ON titles.submission = candidates.id AND titles.part = 'title'
LEFT JOIN scrubbed AS texts ON texts.submission = candidates.id AND texts.part = 'text'
ORDER BY thread_key
