-- Grain: one row a kept line whose id an earlier kept line has; its fate becomes `duplicate`
UPDATE judged
SET fate = 'duplicate'
FROM (
    SELECT id, min({'place': place, 'line': line}) AS first
    FROM judged
    WHERE fate = 'kept'
    GROUP BY id
    HAVING count(*) > 1
) AS repeated
WHERE judged.fate = 'kept' AND judged.id = repeated.id
    AND {'place': judged.place, 'line': judged.line} > repeated.first
