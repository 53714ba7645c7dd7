-- Grain: one row a pair, asked dimension and judge: what each order chose (null where it has no answer), and what both
-- agree on (null where they do not).
CREATE TABLE passes AS
SELECT
    pair_id,
    asked.dimension,
    judges.judge,
    any_value(choice) FILTER ("order" = 'forward') AS forward_choice,
    any_value(choice) FILTER ("order" = 'reverse') AS reverse_choice,
    CASE WHEN forward_choice = reverse_choice THEN forward_choice END AS agreed
FROM pairs
CROSS JOIN (SELECT unnest($dimensions::VARCHAR[]) AS dimension) AS asked
CROSS JOIN (SELECT unnest($judges::VARCHAR[]) AS judge) AS judges
LEFT JOIN answered USING (pair_id, dimension, judge)
GROUP BY pair_id, asked.dimension, judges.judge
