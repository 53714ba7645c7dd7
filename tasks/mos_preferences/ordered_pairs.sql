-- Grain: one row a chosen pair of one dataset and split, by the clips' places in `ratings`.
SELECT chosen, rejected, ring, mos_gap FROM picked WHERE cell = $cell ORDER BY chosen, rejected
