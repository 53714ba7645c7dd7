-- Grain: one row a thread with a score among its images, by key, with the first such image and its best comments; these
-- stand in the order of their keys, so that their places do not tell a writer which people liked. A thread's split is
-- its author's, by the hash of the author; where the account is gone, the thread stands for it.
WITH scores AS (
    SELECT *, row_number() OVER (PARTITION BY thread_key ORDER BY place) AS nth
    FROM images
    WHERE is_score
),

best AS (
    SELECT
        thread_key,
        list(
            {'comment_key': comment_key, 'text': left(text, $longest_comment), 'score': score, 'unripe': unripe}
            ORDER BY comment_key
        ) AS best_comments
    FROM comments
    WHERE place <= $comments
    GROUP BY thread_key
),

placed AS (
    SELECT
        *,
        coalesce(author_key, thread_key) AS author_id,
        md5_number_upper(concat($seed::BIGINT, ':', author_id)) / 18446744073709551616.0 AS spot
    FROM threads
)

SELECT
    placed.* EXCLUDE (spot, subreddit),
    -- a person's own page is a forum too, by the person's name
    CASE WHEN regexp_full_match(subreddit, '[a-z0-9_]{2,24}') AND NOT starts_with(subreddit, 'u_') THEN subreddit
        ELSE '[user]' END AS forum,
    CASE
        WHEN spot < $train_upto THEN 'train'
        WHEN spot < $validation_upto THEN 'validation'
        WHEN spot < $test_upto THEN 'test'
        ELSE 'ood'
    END AS split,
    best.best_comments,
    scores.image_sha256,
    scores.extension,
    concat($folder, '/', scores.image_sha256, '.', scores.extension) AS image_file,
    scores.width,
    scores.height,
    scores.detector,
    scores.score_confidence,
    len(scores.staves) AS staves,
    scores.kind
FROM placed
INNER JOIN scores ON placed.thread_key = scores.thread_key AND scores.nth = 1
INNER JOIN best ON placed.thread_key = best.thread_key
ORDER BY placed.thread_key
