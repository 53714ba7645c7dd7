-- Grain: one row a thing that a row of one file names, in a column or a list; added to `refs`
INSERT INTO refs
SELECT
    $table,
    row,
    thing.kind,
    thing.id,
    CASE $role WHEN 'is' THEN $table WHEN 'keeps' THEN '' WHEN 'part' THEN concat($table, ' ', row) END
FROM (
    SELECT $start + file_row_number AS row, unnest({things}) AS thing
    FROM read_parquet($path, file_row_number = true, hive_partitioning = false)
)
WHERE thing.id IS NOT NULL
