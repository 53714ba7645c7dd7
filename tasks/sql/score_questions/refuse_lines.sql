-- Grain: one row a line that is a reject by its fate, or a duplicate; ids as salted hashes
WITH fated AS (
    SELECT * REPLACE (
        CASE
            WHEN fate = 'kept' AND row_number() OVER (PARTITION BY fate, id ORDER BY place, line) > 1 THEN 'duplicate'
            ELSE fate
        END AS fate
    )
    FROM dump_rows
    WHERE NOT list_contains(getvariable('counted'), fate)
)
SELECT
    getvariable('enters') AS "table",
    coalesce(left(sha256(getvariable('salt') || chr(0) || getvariable('kind') || chr(0) || id), 16), '') AS item,
    getvariable('stage') AS stage,
    details.reason,
    details.detail,
    file,
    line
FROM fated
JOIN details ON details.reason = fated.fate
ORDER BY place, line
