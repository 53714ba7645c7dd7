-- Grain: one row a value of `$column` that rows of one dataset in two splits have.
SELECT $column
FROM read_parquet($1, hive_partitioning = false)
WHERE dataset = $2 AND $column IS NOT NULL
GROUP BY $column
HAVING count(DISTINCT split) > 1
ORDER BY $column
