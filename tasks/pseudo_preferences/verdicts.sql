-- Grain: one row a judged pair: its label in each dimension, and why it is dropped (null where it is kept).
CREATE TABLE verdicts AS
SELECT
    pair_id,
    any_value(agreed) FILTER (dimension = 'musicality') AS musicality,
    any_value(agreed) FILTER (dimension = 'alignment') AS alignment,
    list_sort(list(dimension) FILTER (
        list_contains($require::VARCHAR[], dimension) AND (forward_choice IS NULL OR reverse_choice IS NULL)
    )) AS unanswered,
    list_sort(list(dimension) FILTER (
        list_contains($require::VARCHAR[], dimension) AND forward_choice <> reverse_choice
    )) AS inconsistent,
    CASE
        WHEN len(unanswered) > 0 THEN 'unanswered'
        WHEN len(inconsistent) > 1 THEN 'inconsistent'
        WHEN len(inconsistent) = 1 THEN concat('inconsistent_', inconsistent[1])
    END AS reason,
    string_agg(
        concat(dimension, ': forward ', coalesce(forward_choice, 'no answer'), ', reverse ',
            coalesce(reverse_choice, 'no answer')),
        '; ' ORDER BY dimension
    ) AS detail
FROM passes
GROUP BY pair_id
