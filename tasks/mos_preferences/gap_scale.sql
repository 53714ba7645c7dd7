-- Grain: one row a dataset: the 90th percentile of the MOS gaps of its pairs, over all splits, in points of its widest
-- scale.
CREATE TABLE gap_scale AS
SELECT dataset, quantile_cont(mos_gap * coalesce(widen, 1), 0.9) AS widest_gap
FROM picked
LEFT JOIN narrow_clips ON clip = chosen
JOIN (SELECT DISTINCT cell, dataset FROM cells) USING (cell)
GROUP BY dataset
