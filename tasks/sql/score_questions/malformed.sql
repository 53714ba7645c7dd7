-- Grain: one row a line of a file that holds no object: its place among the lines that are not blank, from 0
SELECT rowid AS place FROM scanned WHERE passed = 'malformed' ORDER BY place
