-- Grain: one row a first-level comment of a thread that has enough of them
SELECT submission, id, author, text, score, unripe
FROM judged
WHERE fate = 'kept' AND submission IN (
    SELECT submission FROM judged WHERE fate = 'kept' GROUP BY submission HAVING count(*) >= getvariable('least_comments')
)
