-- Grain: one row a line of a dump's file that is not blank, in the file's order; null throughout where it is no object
FROM read_json(
    getvariable('file'),
    columns = getvariable('columns'),
    format = 'newline_delimited',
    compression = getvariable('compression'),
    ignore_errors = true
)
