-- Grain: one row a scanned line of comments that is not passed by; `place` of its file, `line` among those not blank
SELECT
    getvariable('place') AS place,
    line,
    CASE
        WHEN submission IS NULL THEN 'missing_parent'
        -- before all else, so that what the scan lets through by a like hash has the fate of other threads' comments
        WHEN thread IS NULL THEN 'other_thread'
        WHEN first_level IS NULL THEN 'missing_parent'
        WHEN NOT first_level THEN 'not_first_level'
        WHEN NOT regexp_full_match(id, '[A-Za-z0-9_]{1,32}') THEN 'bad_id'
        WHEN NOT regexp_matches(coalesce(text, ''), '\S') THEN 'missing_body'
        WHEN gone
            OR regexp_matches(text, '(?i)^[\s\\*_]*\[[\s\\]*((account|comment|user)\s+)?(deleted|unavailable)\s*(by\b[^\]]*)?[\s\\]*\]?[\s*_]*$')
            OR regexp_matches(text, '(?i)^[\s*_]*((account|comment|permanently)\s+)?deleted(\s+by\s+(the\s+)?(author|user))?[\s*_.]*$')
            -- tools that write over what a person wrote
            OR regexp_matches(text, '(?i)^[\s*_\[]*this\s+(comment|post)\s+(has\s+been|was)\s+(mass\s+)?(deleted|overwritten|redacted)\b') THEN 'deleted'
        WHEN regexp_matches(text, '(?i)^[\s\\*_]*\[[\s\\]*(comment\s+)?removed\s*(by\b[^\]]*)?[\s\\]*\]?[\s*_]*$')
            OR regexp_matches(text, '(?i)^[\s*_]*(comment\s+)?removed(\s+(by|per)\s+(an?\s+|the\s+)?(moderators?|mods?|reddit|rule)\b.{0,40})?[\s*_.]*$') THEN 'removed'
        WHEN notice
            OR lower(author) IN ('automoderator', 'remindmebot', 'sneakpeekbot', 'totesmessenger', 'autotldr', 'haikusbot', 'qualityvote')
            OR regexp_matches(coalesce(author, ''), '([_-][Bb]ot|[a-z0-9]Bot|BOT)[0-9_]*$')
            OR regexp_matches(coalesce(flair, ''), '(?i)\bbot\b')
            OR regexp_matches(text, '(?i)\b(i(''|’)?\s*a?m\s+(just\s+)?a\s+(ro)?bot|beep boop|this\s+(action|comment|reply|message)\s+was\s+(performed|posted|made|generated)\s+automatically)\b')
            THEN 'automatic'
        -- accounts that are gone have one name, and are not one person
        WHEN by_asker
            OR nullif(author, '[deleted]') = asker THEN 'not_an_answer'
        -- a call of a bot alone
        WHEN regexp_full_match(text, '(?i)[\s\\*_>]*((remind|update)\s?me(bot)?\s*!|!\s*(remind|update)\s?me\b|/?u/remindmebot\b)[^\n]{0,80}\s*')
            THEN 'not_an_answer'
        -- links and pictures alone: nothing is left without them; replacing costs most
        WHEN NOT regexp_matches(
            CASE WHEN regexp_matches(text, '[\[\]<]|://') THEN regexp_replace(text, '(?i)!?\[(gif|img|image|link|url)[^\]]*\](\([^)]*\))?|!\[[^\]]*\]\([^)]*\)|https?://\S+|\]\([^)]*\)|<image>', ' ', 'g') ELSE text END,
            '[\pL\pN]'
        ) THEN 'not_an_answer'
        WHEN score IS NULL THEN 'bad_score'
        ELSE 'kept'
    END AS fate,
    id,
    submission,
    author,
    text,
    score,
    unripe
FROM (SELECT rowid + 1 AS line, unnest(kept[1]) FROM scanned WHERE passed IS NULL)
LEFT JOIN (SELECT id AS thread, author AS asker FROM candidates) ON thread = submission
