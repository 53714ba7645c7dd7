-- Grain: one row a set, a subset and a kind of sample, counted in one language: ids are the same in all.
SELECT
    split,
    subset,
    kind,
    count(*)::BIGINT AS samples,
    sum(items)::BIGINT AS items,
    sum(items_yes) / sum(items) AS share
FROM samples
WHERE language = (SELECT min(language) FROM samples)
GROUP BY split, subset, kind
ORDER BY split, subset, kind = 'pos' DESC, kind
