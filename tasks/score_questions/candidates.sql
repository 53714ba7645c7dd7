-- Grain: one row a submission that passes the filter, by its file and line
SELECT getvariable('files')[place] AS file, * EXCLUDE (fate)
FROM judged
WHERE fate = 'kept'
ORDER BY place, line
