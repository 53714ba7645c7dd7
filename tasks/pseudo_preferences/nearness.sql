-- Grain: one row for all: how near the clips of chosen pairs lie, beside those of all pairs that could be chosen.
SELECT
    median(cosine) FILTER (pairs.pair_id IS NOT NULL) AS chosen,
    median(cosine) AS candidates,
    avg((cosine > (SELECT median(cosine) FROM compared))::INTEGER) FILTER (pairs.pair_id IS NOT NULL) AS nearer
FROM compared
LEFT JOIN pairs USING (pair_id)
