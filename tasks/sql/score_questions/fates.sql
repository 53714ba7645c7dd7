-- Grain: one row a fate of the dump's lines
SELECT fate, count(*) AS lines FROM dump_rows GROUP BY fate ORDER BY fate
