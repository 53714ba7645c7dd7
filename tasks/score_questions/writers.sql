-- Grain: one row a name that wrote in a candidate's thread, whether that comment is kept or not
SELECT DISTINCT submission, author
FROM judged
WHERE fate <> 'other_thread' AND author IS NOT NULL AND submission IS NOT NULL
