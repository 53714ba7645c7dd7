-- Grain: one row a step, input file and reason: how many rejects there are, and the first three of them
SELECT
    parse_filename(filename, true) AS step,
    file,
    reason,
    count(*) AS items,
    arg_min({'item': item, 'line': line, 'detail': detail}, file_row_number, 3) AS examples
FROM read_parquet($files, filename = true, file_row_number = true, hive_partitioning = false)
GROUP BY ALL
ORDER BY items DESC, step, reason, file
