-- Grain: one row a first-level comment of a thread with enough of them, as `schemas.forum.COMMENTS`, by its thread's key
-- and its place
WITH keyed AS (
    SELECT
        left(sha256(getvariable('salt') || chr(0) || 'thread' || chr(0) || answers.submission), 16) AS thread_key,
        left(sha256(getvariable('salt') || chr(0) || 'comment' || chr(0) || id), 16) AS comment_key,
        CASE
            WHEN NOT list_contains(getvariable('nobody'), lower(author))
                THEN left(sha256(getvariable('salt') || chr(0) || 'author' || chr(0) || author), 16)
        END AS author_key,
        coalesce(scrubbed.text, answers.text) AS text,
        score,
        unripe
    FROM answers
    LEFT JOIN scrubbed ON scrubbed.submission = answers.submission AND scrubbed.part = 'comment ' || answers.id
)
SELECT
    thread_key,
    comment_key,
    author_key,
    row_number() OVER (PARTITION BY thread_key ORDER BY score DESC, comment_key) AS place,
    text,
    CASE
        WHEN regexp_full_match(text, '\S+( \S+)*') THEN len(string_split(text, ' '))
        ELSE len(regexp_extract_all(text, '\S+'))
    END::BIGINT AS words,
    score,
    unripe
FROM keyed
ORDER BY thread_key, place
