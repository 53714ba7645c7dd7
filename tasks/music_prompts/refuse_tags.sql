-- Grain: one row a tag outside the pool, with the criterion that it missed; rows of `rejects`.
SELECT
    'tags' AS "table",
    concat(category, '---', tag) AS item,
    'tags' AS stage,
    criterion AS reason,
    CASE criterion
        WHEN 'unpopular' THEN concat('expected at least ', $popularity, ' tracks, found ', tracks)
        WHEN 'vocal' THEN concat('expected a tag that asks for no voices, found: ', vocal)
        WHEN 'excluded' THEN 'expected a tag that the config does not exclude (pool.exclude)'
        WHEN 'rarely_mentioned' THEN concat('expected at least ', $mentions, ' captions that name it, found ', mentions)
        WHEN 'not_verified' THEN concat('expected ', $asked, ', found none')
        ELSE concat('expected a recall of at least ', $recall::DOUBLE, ', found ', round(recall, 4), ' (', detected, ' of ', asked, ')')
    END AS detail,
    NULL::VARCHAR AS file,
    NULL::BIGINT AS line
FROM tags
WHERE criterion IS NOT NULL
ORDER BY category, tag
