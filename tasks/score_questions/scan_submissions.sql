-- Grain: one row a line of a file of submissions, in its order; why it is passed by, or its fate; only what is kept keeps
-- its texts
WITH lines AS (
    SELECT
        * EXCLUDE (title, selftext),
        coalesce(title, '') AS title,
        coalesce(selftext, '') AS text,
        -- a crosspost shows the gallery of what it posts again
        CASE
            WHEN contains(coalesce(crosspost_parent_list, ''), 'media_metadata') AND media_metadata IS NULL
                THEN TRY(json_extract(crosspost_parent_list, '$[0]'))
        END AS crossposted,
        TRY_CAST(created_utc AS DOUBLE) AS created_s
    FROM dump_lines
),
looked_at AS (
    SELECT
        *,
        CASE
            WHEN id IS NULL THEN 'malformed'
            WHEN len(getvariable('subreddits')) > 0
                AND NOT list_contains(getvariable('subreddits'), coalesce(lower(subreddit), '')) THEN 'other_subreddit'
            -- what is no time at all is a reject below
            WHEN created_s BETWEEN 0 AND 4102444800
                AND NOT year(make_timestamp((created_s * 1000000)::BIGINT))
                BETWEEN getvariable('first_year') AND getvariable('last_year') THEN 'other_year'
        END AS passed,
        CASE
            WHEN regexp_matches(coalesce(url, ''), '(?i)^https?://[^?#]+\.(png|jpe?g|gif|webp|bmp|tiff?)([?#].*)?$')
                THEN 'direct'
            WHEN regexp_matches(coalesce(media_metadata, crossposted::VARCHAR, ''), '"(Animated)?Image"') THEN 'gallery'
            -- which file a page shows, and whether a rule tells it, `links.py` says
            WHEN regexp_matches(
                coalesce(url, ''),
                '(?i)^https?://((www\.|m\.|i\.)?imgur\.com/\w|i\.reddituploads\.com/\w|((www|old|new|np)\.)?reddit\.com/media\?)'
            ) THEN 'page'
            WHEN contains(coalesce(preview, ''), '"url"') THEN 'preview'
            WHEN contains(text, '://') AND regexp_matches(
                text,
                '(?i)https?://(((www\.|m\.|i\.)?imgur\.com|i\.reddituploads\.com|(i|preview)\.redd\.it)/\w|((www|old|new|np)\.)?reddit\.com/media\?|[^\s?#()]+\.(png|jpe?g|gif|webp|bmp|tiff?)\b)'
            ) THEN 'text'
            -- a file of its name in the folder of images; a bit by the id's hash lets a few others through to the judge
            WHEN id IS NOT NULL AND get_bit(getvariable('in_folder'), (hash(id) % getvariable('bits'))::INTEGER) = 1 THEN 'folder'
        END AS image_from
    FROM lines
),
counted AS (
    SELECT
        *,
        -- counting words costs most; where single spaces part them, their splitting is quicker than a pattern
        CASE
            WHEN passed IS NOT NULL OR image_from IS NULL
                -- a text of megabytes has more words than memory has room for
                OR length(title) + length(text) > getvariable('longest_letters') THEN NULL
            -- scripts without spaces: each of their signs counts as a word; ASCII has none
            WHEN strlen(title || text) > length(title || text) AND regexp_matches(title || text, '[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]')
                THEN len(regexp_extract_all(title || ' ' || text, '[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]|[^\s\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+'))
            WHEN NOT regexp_matches(title || ' ' || text, '^ |  |[\t\n\f\r]| $') THEN len(string_split(title || ' ' || text, ' '))
            ELSE len(regexp_extract_all(title || ' ' || text, '\S+'))
        END AS words
    FROM looked_at
),
judged AS (
    SELECT
        *,
        CASE
            WHEN passed IS NOT NULL THEN NULL
            WHEN NOT regexp_full_match(id, '[A-Za-z0-9_]{1,32}') THEN 'bad_id'
            WHEN created_s IS NULL OR NOT created_s BETWEEN 0 AND 4102444800 THEN 'bad_time'
            -- dumps from 2023-11 on keep the text of what was gone when it was read again, a day and a half later
            WHEN coalesce(removed_by_category, nullif(removal_reason, ''), nullif(removed_by, ''), nullif(nullif(banned_by, ''), 'false')) IS NOT NULL
                OR coalesce(TRY(json_extract_string(_meta, '$.was_deleted_later')) = 'true', false)
                OR regexp_matches(text, '(?i)^\s*\[\s*(removed|deleted)\s*(by\b[^\]]*)?\]?\s*$')
                OR regexp_matches(title, '(?i)^\s*\[\s*(removed|deleted)\b') THEN 'removed'
            WHEN lower(over_18) IN ('true', '1') THEN 'adult'
            WHEN NOT regexp_matches(title, '\S') THEN 'missing_title'
            WHEN image_from IS NULL THEN 'no_image'
            WHEN words IS NULL OR words > getvariable('longest_words') THEN 'too_many_words'
            ELSE 'kept'
        END AS fate
    FROM counted
)
SELECT
    passed,
    fate,
    CASE WHEN passed IS NULL THEN id END AS id,
    CASE WHEN fate = 'kept' THEN author END AS author,
    CASE WHEN fate = 'kept' THEN lower(subreddit) END AS subreddit,
    CASE WHEN fate = 'kept' THEN year(make_timestamp((created_s * 1000000)::BIGINT)) END AS created_year,
    CASE WHEN fate = 'kept' THEN title END AS title,
    CASE WHEN fate = 'kept' THEN text END AS text,
    CASE WHEN fate = 'kept' THEN words END AS words,
    CASE WHEN fate = 'kept' THEN image_from END AS image_from,
    CASE WHEN fate = 'kept' THEN url END AS url,
    CASE WHEN fate = 'kept' THEN coalesce(media_metadata, crossposted->>'$.media_metadata') END AS media_metadata,
    CASE WHEN fate = 'kept' THEN coalesce(gallery_data, crossposted->>'$.gallery_data') END AS gallery_data,
    CASE WHEN fate = 'kept' THEN preview END AS preview
FROM judged
