-- Grain: adds one row a candidate pair that is not among the first `per_clip` pairs of both its clips.
--
-- A clip's pairs are ranked by level first, so further levels never push out a pair that an earlier one brought.
INSERT INTO beyond
WITH ends AS (
    SELECT rowid AS pair, chosen AS clip, level, ring, hash FROM candidates
    UNION ALL
    SELECT rowid AS pair, rejected AS clip, level, ring, hash FROM candidates
)

SELECT DISTINCT pair
FROM (SELECT pair, row_number() OVER (PARTITION BY clip ORDER BY level, ring, hash) AS place FROM ends)
WHERE place > $per_clip
