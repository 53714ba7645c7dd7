-- Grain: one row a dataset, split and subset. A cell (dataset and split) has a quota; a stratum (cell and subset) is
-- one listening test, within which MOS compare.
CREATE TABLE cells AS
SELECT
    dataset,
    split,
    subset,
    (dense_rank() OVER (ORDER BY dataset, split) - 1)::SMALLINT AS cell,
    (row_number() OVER (ORDER BY dataset, split, subset) - 1)::INTEGER AS stratum,
    count(*) AS clips
FROM read_parquet($files, hive_partitioning = false)
GROUP BY dataset, split, subset
