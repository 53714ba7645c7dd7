-- Grain: one row a judged pair: its label in each dimension, and why it is dropped (null where it is kept).
--
-- One judge's label is what both orders agree on; several judges' is what their votes come to.
CREATE TABLE verdicts AS
WITH decided AS (
    SELECT
        pair_id,
        passes.dimension,
        any_value(combined.choice) AS choice,
        count(*) AS judges,
        count(*) FILTER (forward_choice IS NOT NULL AND reverse_choice IS NOT NULL) AS answered,
        concat(passes.dimension, ': ', string_agg(
            concat(
                CASE WHEN len($judges::VARCHAR[]) > 1 THEN concat(judge, ' ') END,
                'forward ', coalesce(forward_choice, 'no answer'), ', reverse ', coalesce(reverse_choice, 'no answer')
            ),
            ', ' ORDER BY judge
        )) AS detail
    FROM passes
    LEFT JOIN combined ON combined.item = passes.pair_id AND combined.dimension = passes.dimension
    GROUP BY pair_id, passes.dimension
)

SELECT
    pair_id,
    any_value(choice) FILTER (dimension = 'musicality') AS musicality,
    any_value(choice) FILTER (dimension = 'alignment') AS alignment,
    list_sort(list(dimension) FILTER (
        list_contains($require::VARCHAR[], dimension) AND choice IS NULL AND answered = 0
    )) AS unanswered,
    list_sort(list(dimension) FILTER (
        list_contains($require::VARCHAR[], dimension) AND choice IS NULL AND answered > 0
    )) AS inconsistent,
    CASE
        WHEN len(unanswered) > 0 THEN 'unanswered'
        WHEN len(inconsistent) > 0 AND max(judges) > 1 THEN 'jury_undecided'
        WHEN len(inconsistent) > 0 THEN 'inconsistent'
    END AS reason,
    string_agg(detail, '; ' ORDER BY dimension) AS detail
FROM decided
GROUP BY pair_id
