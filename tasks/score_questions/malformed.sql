-- Grain: one row a line of a file that holds no object: its number among those that are not blank
SELECT rowid + 1 AS line FROM scanned WHERE passed = 'malformed' ORDER BY line
