-- Grain: one row a dataset and split none of whose clips has a known content.
SELECT DISTINCT dataset, split
FROM clips
JOIN cells USING (stratum)
GROUP BY dataset, split
HAVING count(content) = 0
ORDER BY dataset, split
