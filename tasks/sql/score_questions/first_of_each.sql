-- Grain: one row a kept id; a later line of the same id is a duplicate
FROM dump_rows
WHERE fate = 'kept'
QUALIFY row_number() OVER (PARTITION BY id ORDER BY place, line) = 1
