-- Grain: one row a comparison to be placed in a split, in a stable order.
--
-- `cell` is what the drawn splits are balanced over; `size` is how many samples it is.
SELECT
    comparison_id,
    prompt_key,
    list(DISTINCT concat(source, chr(31), prompt_id)) FILTER (prompt_id IS NOT NULL) AS prompt_ids,
    list(DISTINCT concat_ws(chr(31), plain_words(text), plain_words(lyrics))) FILTER (coalesce(text, lyrics) IS NOT NULL)
        AS words,
    list_distinct(list_concat(list(clip_a), list(clip_b), list(concat(source, '/', reference))
        FILTER (reference IS NOT NULL))) AS clips,
    list_distinct(list_concat(list(sha_a), list(sha_b), list(sha_reference))) AS sounds,
    list(DISTINCT annotator) FILTER (annotator IS NOT NULL) AS annotators,
    list(DISTINCT source) AS sources,
    list(DISTINCT split) FILTER (split IS NOT NULL) AS native,
    concat_ws(', ', 'all',
        CASE WHEN first(lyrics ORDER BY row) IS NULL THEN 'no lyrics' ELSE 'lyrics' END,
        CASE WHEN first(reference ORDER BY row) IS NULL THEN 'no reference' ELSE 'reference' END) AS cell,
    CASE WHEN $unit = 'vote' THEN count(*) ELSE 1 END AS size,
    md5(concat($seed::BIGINT, ':', comparison_id)) AS draw
FROM cast_votes
GROUP BY comparison_id, prompt_key
ORDER BY comparison_id
