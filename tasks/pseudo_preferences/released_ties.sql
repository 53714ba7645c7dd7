-- Grain: one row a usable released label: what it may not share with another split, the name that its place in a split
-- goes by, if it shares nothing, and the split that the release names.
SELECT
    row,
    list_filter(
        [
            concat('prompt ', prompt_id),
            CASE
                WHEN plain_words(text) <> '' OR plain_words(lyrics) <> ''
                    THEN concat('words ', plain_words(text), chr(31), plain_words(lyrics))
            END,
            'sound ' || reference_sha256,
            concat('clip ', sha_a),
            concat('clip ', sha_b)
        ],
        lambda tie: tie IS NOT NULL
    ) AS ties,
    coalesce(reference_sha256, concat(text, chr(10), lyrics)) AS name,
    split
FROM released_pairs
WHERE reason IS NULL
ORDER BY row
