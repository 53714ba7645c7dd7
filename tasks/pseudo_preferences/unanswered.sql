-- Grain: one row a request without an answer, as the table `rejects` has it, and whether a further run comes to the same.
SELECT
    'judgments' AS "table",
    concat_ws(' ', pair_id, "order", dimensions, CASE WHEN $judges > 1 THEN judge END) AS item,
    'judge' AS stage,
    reason,
    detail,
    NULL::VARCHAR AS file,
    NULL::BIGINT AS line,
    [{'kind': 'pair', 'id': pair_id}] AS made_from,
    final
FROM draws
WHERE reason IS NOT NULL
ORDER BY pair_id, dimensions, "order", judge
