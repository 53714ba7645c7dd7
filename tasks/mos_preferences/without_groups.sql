-- Grain: one row a dataset and split none of whose clips has a known content; or none a known system or speaker, nor
-- a condition of a known content, by which pairs are matched too.
SELECT
    dataset,
    split,
    count(content) = 0 AS no_contents,
    count(system) + count(speaker) = 0 AND (count(content) = 0 OR count(condition) = 0) AS no_sources
FROM clips
JOIN cells USING (stratum)
GROUP BY dataset, split
HAVING no_contents OR no_sources
ORDER BY dataset, split
