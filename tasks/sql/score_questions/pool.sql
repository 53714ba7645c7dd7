-- Grain: one row a thread with a score among its images, by key, with the first such image and its best comments; these
-- stand in the order of their keys, so that their places do not tell a writer which people liked.
WITH scores AS (
    SELECT *, row_number() OVER (PARTITION BY thread_key ORDER BY place) AS nth
    FROM images
    WHERE is_score
),

best AS (
    SELECT
        thread_key,
        list({'comment_key': comment_key, 'text': text, 'score': score} ORDER BY comment_key) AS best_comments
    FROM comments
    WHERE place <= $comments
    GROUP BY thread_key
)

SELECT
    threads.thread_key,
    coalesce(threads.author_key, threads.thread_key) AS author_key,
    threads.title,
    threads.text,
    best.best_comments,
    scores.image_sha256,
    scores.extension
FROM threads
INNER JOIN scores ON threads.thread_key = scores.thread_key AND scores.nth = 1
INNER JOIN best ON threads.thread_key = best.thread_key
ORDER BY threads.thread_key
