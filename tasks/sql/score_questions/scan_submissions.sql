-- Grain: one row a line of a file of submissions, in its order; of lines that are not wanted, only their fate is told
WITH lines AS (
    SELECT
        *,
        coalesce(title, '') AS heading,
        coalesce(selftext, '') AS body,
        TRY_CAST(created_utc AS DOUBLE) AS created_s
    FROM dump_lines
),
judged AS (
    SELECT
        *,
        CASE
            WHEN id IS NULL THEN 'malformed'
            WHEN NOT regexp_full_match(id, '[A-Za-z0-9_]{1,32}') THEN 'bad_id'
            WHEN len(getvariable('subreddits')) > 0
                AND NOT list_contains(getvariable('subreddits'), coalesce(lower(subreddit), '')) THEN 'other_subreddit'
            WHEN created_s IS NULL OR NOT created_s BETWEEN 0 AND 4102444800 THEN 'bad_time'
            WHEN NOT year(make_timestamp((created_s * 1000000)::BIGINT))
                BETWEEN getvariable('first_year') AND getvariable('last_year') THEN 'other_year'
            WHEN removed_by_category IS NOT NULL OR trim(body) IN ('[removed]', '[deleted]')
                OR starts_with(trim(heading), '[deleted') OR starts_with(trim(heading), '[removed') THEN 'removed'
            WHEN lower(over_18) IN ('true', '1') AND NOT getvariable('adult') THEN 'adult'
            WHEN trim(heading) = '' THEN 'missing_title'
            WHEN NOT (
                regexp_matches(coalesce(url, ''), '(?i)^https?://[^?#]+\.(png|jpe?g|gif|webp|bmp|tiff?)([?#].*)?$')
                OR contains(coalesce(media_metadata, ''), '"Image"')
                OR contains(coalesce(preview, ''), '"url"')
            ) THEN 'no_image'
            -- last, since counting words costs most
            WHEN length(heading) + length(body) > 100 * getvariable('longest_words') THEN 'too_many_words'
            WHEN len(regexp_extract_all(heading || ' ' || body, '\S+')) > getvariable('longest_words')
                THEN 'too_many_words'
            ELSE 'kept'
        END AS fate
    FROM lines
)
SELECT
    fate,
    CASE WHEN fate NOT IN ('malformed', 'bad_id', 'other_subreddit', 'other_year') THEN id END AS id,
    CASE WHEN fate = 'kept' THEN author END AS author,
    CASE WHEN fate = 'kept' THEN lower(subreddit) END AS subreddit,
    CASE WHEN fate = 'kept' THEN year(make_timestamp((created_s * 1000000)::BIGINT)) END AS created_year,
    CASE WHEN fate = 'kept' THEN heading END AS title,
    CASE WHEN fate = 'kept' THEN body END AS text,
    CASE WHEN fate = 'kept' THEN len(regexp_extract_all(heading || ' ' || body, '\S+')) END AS words,
    CASE
        WHEN fate <> 'kept' THEN NULL
        WHEN regexp_matches(coalesce(url, ''), '(?i)^https?://[^?#]+\.(png|jpe?g|gif|webp|bmp|tiff?)([?#].*)?$')
            THEN 'direct'
        WHEN contains(coalesce(media_metadata, ''), '"Image"') THEN 'gallery'
        ELSE 'preview'
    END AS image_from,
    CASE WHEN fate = 'kept' THEN url END AS url,
    CASE WHEN fate = 'kept' THEN media_metadata END AS media_metadata,
    CASE WHEN fate = 'kept' THEN gallery_data END AS gallery_data,
    CASE WHEN fate = 'kept' THEN preview END AS preview
FROM judged
