-- Grain: one row a set, a subset and a kind of sample, each counted in one of its languages: ids are the same in all.
SELECT
    split,
    subset,
    kind,
    count(*)::BIGINT AS samples,
    sum(items)::BIGINT AS items,
    sum(items_yes) / sum(items) AS share
FROM samples
WHERE (sample_id, language) IN (SELECT (sample_id, min(language)) FROM samples GROUP BY sample_id)
GROUP BY split, subset, kind
ORDER BY split, subset, kind = 'pos' DESC, kind
