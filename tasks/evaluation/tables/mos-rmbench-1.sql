-- Grain: one row a dataset, and all; MOS-RMBench's Table 1.
SELECT
    if(grouping(dataset) = 1, 'Overall', dataset) AS "Dataset",
    format('{:,}', nullif(count(*) FILTER (split = 'train'), 0)) AS "Train",
    format('{:,}', nullif(count(*) FILTER (split = 'validation'), 0)) AS "Dev",
    format('{:,}', nullif(count(*) FILTER (split IN ('test', 'ood')), 0)) AS "Test"
FROM pairs
GROUP BY ROLLUP (dataset)
ORDER BY grouping(dataset), lower(dataset)
