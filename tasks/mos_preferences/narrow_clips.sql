-- Grain: one row a clip whose scale is narrower than the widest of its dataset's listening tests, with how many times.
-- Empty where a dataset has one scale.
CREATE TABLE narrow_clips AS
SELECT clip, widest / width AS widen
FROM (SELECT clip, 4 / to_five AS width, max(4 / to_five) OVER (PARTITION BY dataset) AS widest
    FROM clips JOIN (SELECT DISTINCT cell, dataset FROM cells) USING (cell))
WHERE width < widest
