-- Grain: one row a judged line that is a reject by its fate, which is one of the details; ids as salted hashes
SELECT
    getvariable('enters') AS "table",
    coalesce(left(sha256(getvariable('salt') || chr(0) || getvariable('kind') || chr(0) || id), 16), '') AS item,
    getvariable('stage') AS stage,
    fate AS reason,
    getvariable('details')[fate] AS detail,
    getvariable('files')[place] AS file,
    line
FROM judged
WHERE getvariable('details')[fate] IS NOT NULL
ORDER BY place, line
