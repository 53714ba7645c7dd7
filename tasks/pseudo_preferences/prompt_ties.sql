-- Grain: one row a usable prompt: its words, its reference audio, and the name that its place in a split goes by, if it
-- shares neither with another.
SELECT
    prompts.row,
    concat_ws(chr(31), plain_words(text), plain_words(lyrics)) AS words,
    media.clip_sha256 AS sound,
    coalesce(media.clip_sha256, concat(text, chr(10), lyrics)) AS name
FROM prompts
LEFT JOIN media ON media.kind = 'reference' AND media.item = prompts.row
WHERE prompts.row NOT IN (SELECT row FROM refused_prompts)
ORDER BY prompts.row
