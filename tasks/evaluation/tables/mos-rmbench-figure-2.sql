-- Grain: one row a bin of a quarter point of MOS; the bars of MOS-RMBench's Figure 2 (a, b).
WITH rated AS (
    SELECT
        sample_id,
        least(floor((mos - scale_min) / (scale_max - scale_min) * 16), 15)::INT AS bin
    FROM ratings
),

counted AS (
    SELECT
        bin,
        count(*) FILTER (side = 'chosen') AS chosen,
        count(*) FILTER (side = 'rejected') AS rejected
    FROM (
        SELECT unnest([
            {'side': 'chosen', 'sample_id': chosen_id}, {'side': 'rejected', 'sample_id': rejected_id}
        ], recursive := true)
        FROM pairs
    )
    JOIN rated USING (sample_id)
    GROUP BY bin
)

SELECT
    format('{:.2f} to {:.2f}', 1 + bin / 4, 1.25 + bin / 4) AS "MOS",
    format('{:,}', coalesce(chosen, 0)) AS "Chosen",
    format('{:.2f}', 100 * coalesce(chosen, 0) / sum(chosen) OVER ()) AS "Chosen (%)",
    format('{:,}', coalesce(rejected, 0)) AS "Rejected",
    format('{:.2f}', 100 * coalesce(rejected, 0) / sum(rejected) OVER ()) AS "Rejected (%)"
FROM range(16) AS bins (bin)
LEFT JOIN counted USING (bin)
WHERE EXISTS (FROM counted)
ORDER BY bin
