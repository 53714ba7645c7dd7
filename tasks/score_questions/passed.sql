-- Grain: one row a reason for which lines of a file were passed by
SELECT passed, count(*) AS lines FROM scanned WHERE passed IS NOT NULL GROUP BY passed ORDER BY passed
