-- Grain: one row a submission with too few first-level comments
SELECT
    getvariable('enters') AS "table",
    left(sha256(getvariable('salt') || chr(0) || 'thread' || chr(0) || candidates.id), 16) AS item,
    'threads' AS stage,
    'too_few_comments' AS reason,
    format(
        'expected at least {} first-level comments, found {}', getvariable('least_comments'), count(judged.id)
    ) AS detail,
    any_value(candidates.file) AS file,
    any_value(candidates.line) AS line
FROM candidates
LEFT JOIN judged ON judged.submission = candidates.id AND judged.fate = 'kept'
GROUP BY candidates.id
HAVING count(judged.id) < getvariable('least_comments')
ORDER BY item
