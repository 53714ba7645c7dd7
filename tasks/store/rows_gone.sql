-- Grain: one row a row that leaves with a thing that it names, and was not known to leave; added to `rows_gone`
INSERT INTO rows_gone
SELECT DISTINCT "table", row
FROM refs
SEMI JOIN things_gone USING (kind, id)
ANTI JOIN rows_gone USING ("table", row)
