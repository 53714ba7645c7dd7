-- Grain: one row a line of the dump that is not blank: `place` of its file in the config, and its line there
SELECT
    files.name AS file,
    files.place,
    file_row_number + 1 AS line,
    rows.* EXCLUDE (filename, file_row_number)
FROM read_parquet(getvariable('rows'), filename = true, file_row_number = true) AS rows
JOIN files ON files.path = rows.filename
