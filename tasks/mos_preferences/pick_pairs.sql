-- Grain: one row a chosen pair: of each cell, category and bin of gaps the first `take` candidates by level, then by hash.
--
-- Sorting every candidate would cost more than all the rest. So they are counted in 4,096 ranges of the hash, and only
-- the one range in which the last place falls is ranked.
CREATE TABLE picked AS
WITH filled AS (
    SELECT cell, category, bin, level, (hash >> 52)::SMALLINT AS slot, count(*) AS pairs
    FROM allowed
    GROUP BY ALL
),

running AS (
    SELECT *, sum(pairs) OVER (PARTITION BY cell, category, bin ORDER BY level, slot)::BIGINT AS upto FROM filled
),

edges AS (
    SELECT cell, category, bin, level, slot, takes.take - (upto - pairs) AS room
    FROM running
    JOIN takes USING (cell, category, bin)
    WHERE upto - pairs < takes.take AND takes.take <= upto
),

within AS (
    SELECT
        candidates.*,
        edges.room,
        candidates.level = edges.level AND (hash >> 52)::SMALLINT = edges.slot AS at_edge
    FROM allowed AS candidates
    JOIN edges USING (cell, category, bin)
    WHERE candidates.level < edges.level
        OR (candidates.level = edges.level AND (hash >> 52)::SMALLINT <= edges.slot)
)

SELECT chosen, rejected, cell, ring, category, mos_gap, hash FROM within WHERE NOT at_edge
UNION ALL
SELECT chosen, rejected, cell, ring, category, mos_gap, hash
FROM (
    SELECT *, row_number() OVER (PARTITION BY cell, category, bin ORDER BY hash, chosen, rejected) AS place
    FROM within
    WHERE at_edge
)
WHERE place <= room
