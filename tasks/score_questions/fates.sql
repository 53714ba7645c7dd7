-- Grain: one row a fate of the lines that were judged
SELECT fate, count(*) AS lines FROM judged GROUP BY fate ORDER BY fate
