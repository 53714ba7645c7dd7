-- Grain: one row a vote and dimension, of comparisons on which two votes or more chose in that dimension.
--
-- `choice` is 0 for a, 1 for b, 2 for a tie; `month` is that of the comparison.
SELECT
    choices.comparison_id,
    dimension,
    choices.source,
    comparisons.month,
    annotator,
    CASE choice WHEN 'a' THEN 0 WHEN 'b' THEN 1 ELSE 2 END AS choice
FROM (
    UNPIVOT votes ON musicality, alignment, overall INTO NAME dimension VALUE choice
) AS choices
JOIN comparisons USING (comparison_id)
QUALIFY count(*) OVER (PARTITION BY comparison_id, dimension) > 1
ORDER BY comparison_id, dimension, vote_id
