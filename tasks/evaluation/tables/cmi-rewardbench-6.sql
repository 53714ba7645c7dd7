-- Grain: one row a measure of agreement; CMI-RewardBench's Table 6.
WITH listed AS (
    SELECT dimension, unnest([
        {'place': 1, 'name': 'Agreement Count', 'value': format('{:,}', agree)},
        {'place': 2, 'name': 'Disagreement Count', 'value': format('{:,}', vote_pairs - agree)},
        {'place': 3, 'name': 'Agreement Rate', 'value': format('{:.3f}', rate)},
        {'place': 4, 'name': 'Krippendorff''s α', 'value': format('{:.3f}', alpha)}
    ], recursive := true)
    FROM agreement
    WHERE scope = 'all'
)

SELECT
    name AS "Metric",
    any_value(value) FILTER (dimension = 'alignment') AS "Instruction Following",
    any_value(value) FILTER (dimension = 'musicality') AS "Music Quality"
FROM listed
GROUP BY place, name
ORDER BY place
