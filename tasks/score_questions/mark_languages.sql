-- Grain: one row a kept line in another language than the config keeps; its fate becomes `other_language`
UPDATE judged
SET fate = 'other_language'
FROM others
WHERE judged.place = others.place AND judged.line = others.line
