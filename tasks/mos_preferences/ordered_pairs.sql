-- Grain: one row a chosen pair of one dataset and split, by the clips' places in `ratings`, with its tenth of that split's
-- pairs by gap: tenths are of equal size, so that equal gaps may stand in two of them, by the pair's hash.
SELECT
    chosen,
    rejected,
    ring,
    mos_gap,
    mos_gap * coalesce(widen, 1) AS scaled_gap,
    ntile(10) OVER (ORDER BY round(scaled_gap, 9), hash, chosen, rejected) AS gap_decile
FROM picked
LEFT JOIN narrow_clips ON clip = chosen
WHERE cell = $cell
ORDER BY chosen, rejected
