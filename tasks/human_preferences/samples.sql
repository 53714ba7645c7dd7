-- Grain: one row a sample and dimension: a vote, or where $unit is comparison what votes on two clips say together.
CREATE TABLE samples AS
SELECT
    concat(vote_id, '-', dimension) AS sample_id,
    split,
    comparison_id,
    vote_id,
    dimension,
    choice AS preference,
    confidence
FROM choices
WHERE $unit = 'vote'
UNION ALL
SELECT preference_id, split, comparison_id, NULL, dimension, preference, confidence
FROM preferences
WHERE $unit = 'comparison'
