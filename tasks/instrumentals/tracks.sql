-- Grain: one row a track whose voice was removed, in the list's order.
SELECT
    pool.*,
    separated.* EXCLUDE (row, reason, detail)
FROM pool
JOIN separated USING (row)
WHERE separated.reason IS NULL AND pool.split = $split
ORDER BY row
