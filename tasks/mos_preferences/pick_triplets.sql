-- Grain: one row a chosen triplet: of each dataset and category the first `take` by level, then by hash.
CREATE TABLE picked_triplets AS
SELECT dataset, cell, ring, a, b, c
FROM triplet_candidates
JOIN (SELECT DISTINCT cell, dataset FROM cells) USING (cell)
JOIN triplet_takes USING (dataset, category)
QUALIFY row_number() OVER (PARTITION BY dataset, category ORDER BY level, hash, a, b, c) <= triplet_takes.take
