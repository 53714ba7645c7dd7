-- Grain: one row a chosen triplet of one dataset and split, by the clips' places in `ratings`.
SELECT a, b, c, ring FROM picked_triplets WHERE cell = $cell ORDER BY a, b, c
