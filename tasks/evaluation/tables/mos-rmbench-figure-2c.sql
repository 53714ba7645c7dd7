-- Grain: one row a bin of a quarter point between the MOS of a pair; the bars of MOS-RMBench's Figure 2 (c).
WITH counted AS (
    SELECT least(floor(mos_gap / (scale_max - scale_min) * 16), 15)::INT AS bin, count(*) AS pairs
    FROM pairs
    JOIN ratings ON sample_id = chosen_id
    WHERE pairs.split IN ('test', 'ood')
    GROUP BY ALL
)

SELECT
    format('{:.2f} to {:.2f}', bin / 4, 0.25 + bin / 4) AS "ΔMOS",
    format('{:,}', coalesce(pairs, 0)) AS "Pairs",
    format('{:.2f}', 100 * coalesce(pairs, 0) / sum(pairs) OVER ()) AS "Pairs (%)"
FROM range(16) AS bins (bin)
LEFT JOIN counted USING (bin)
WHERE EXISTS (FROM counted)
ORDER BY bin
