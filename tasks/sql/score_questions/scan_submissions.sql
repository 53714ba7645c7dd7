-- Grain: one row a line of a file of submissions, in its order; of those passed by nothing is kept, the rest is judged later
WITH lines AS (
    SELECT
        *,
        CASE
            WHEN id IS NULL THEN 'malformed'
            WHEN len(getvariable('subreddits')) > 0
                AND NOT list_contains(getvariable('subreddits'), coalesce(lower(subreddit), '')) THEN 'other_subreddit'
            -- what is no time at all is judged later
            WHEN TRY_CAST(created_utc AS DOUBLE) BETWEEN 0 AND 4102444800
                AND NOT year(make_timestamp((TRY_CAST(created_utc AS DOUBLE) * 1000000)::BIGINT))
                BETWEEN getvariable('first_year') AND getvariable('last_year') THEN 'other_year'
        END AS passed
    FROM dump_lines
)
SELECT
    passed,
    CASE WHEN passed IS NULL THEN id END AS id,
    CASE WHEN passed IS NULL THEN subreddit END AS subreddit,
    CASE WHEN passed IS NULL THEN author END AS author,
    CASE WHEN passed IS NULL THEN created_utc END AS created_utc,
    CASE WHEN passed IS NULL THEN title END AS title,
    CASE WHEN passed IS NULL THEN selftext END AS selftext,
    CASE WHEN passed IS NULL THEN url END AS url,
    CASE WHEN passed IS NULL THEN over_18 END AS over_18,
    CASE WHEN passed IS NULL THEN removed_by_category END AS removed_by_category,
    CASE WHEN passed IS NULL THEN media_metadata END AS media_metadata,
    CASE WHEN passed IS NULL THEN gallery_data END AS gallery_data,
    CASE WHEN passed IS NULL THEN preview END AS preview
FROM lines
