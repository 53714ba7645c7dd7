-- Grain: one row a source: how many ratings it has of how many clips, by whom, from where to where, and what looks odd.
WITH per_clip AS (
    SELECT dataset, file, count(*) AS ratings, count(DISTINCT system_id) AS systems FROM imported GROUP BY dataset, file
),

per_listener AS (
    SELECT dataset, listener_id, count(*) AS ratings, min(score) = max(score) AS one_score
    FROM imported
    WHERE listener_id IS NOT NULL
    GROUP BY dataset, listener_id
),

clips AS (
    SELECT dataset, count(*) AS clips, min(ratings) AS least, median(ratings) AS usual, max(ratings) AS most
    FROM per_clip
    GROUP BY dataset
),

listeners AS (
    SELECT
        dataset,
        count(*) AS listeners,
        bool_and(one_score) AND count(*) FILTER (ratings > 1) > 1 AS one_score_each,
        max(ratings) = 1 AS one_rating_each
    FROM per_listener
    GROUP BY dataset
)

SELECT
    dataset,
    count(*) AS ratings,
    any_value(clips) AS clips,
    any_value(least) AS least,
    any_value(usual) AS usual,
    any_value(most) AS most,
    any_value(listeners) AS listeners,
    any_value(one_score_each) AND count(DISTINCT score) > 1 AS one_score_each,
    any_value(one_rating_each) AS one_rating_each,
    count(DISTINCT score) AS scores,
    min(score) AS lowest,
    max(score) AS highest,
    bool_or(votes IS NOT NULL OR mos_std IS NOT NULL) AS means,
    count(DISTINCT system_id) AS systems
FROM imported
JOIN clips USING (dataset)
LEFT JOIN listeners USING (dataset)
GROUP BY dataset
ORDER BY dataset
