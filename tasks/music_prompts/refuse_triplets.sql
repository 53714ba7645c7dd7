-- Grain: one row a triplet for which no prompt could be had, with what was wrong with the last; rows of `rejects`.
SELECT
    'prompts' AS "table",
    concat(queue.triplet_id, ' ', queue.genre, ', ', queue.instrument, ', ', queue.mood_theme) AS item,
    'prompts' AS stage,
    failed.reason,
    concat(queue.stratum, ': ', failed.detail) AS detail,
    NULL::VARCHAR AS file,
    NULL::BIGINT AS line,
    [{'kind': 'prompt', 'id': queue.triplet_id}] AS made_from
FROM failed
JOIN queue USING (triplet_id)
ORDER BY queue.stratum, queue.rank
