-- Grain: one row a cell, kind of group (see ring_of) and group size: how many such groups there are.
WITH grouped AS (
    SELECT cell, CASE $ring WHEN 0 THEN content WHEN 1 THEN system WHEN 2 THEN speaker ELSE stratum END AS grouping
    FROM clips
)

SELECT cell, size, count(*) AS groups
FROM (SELECT cell, grouping, count(*) AS size FROM grouped WHERE grouping IS NOT NULL GROUP BY cell, grouping)
GROUP BY cell, size
