-- Grain: one row a dataset: the nine deciles of the MOS gaps of its pairs, over all splits.
CREATE TABLE gap_scale AS
SELECT dataset, quantile_cont(mos_gap, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]) AS deciles
FROM picked
JOIN (SELECT DISTINCT cell, dataset FROM cells) USING (cell)
GROUP BY dataset
