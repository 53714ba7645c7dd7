-- Grain: one row a pair that was answered in more than one way on one dimension, by its orders or its judges.
SELECT DISTINCT generation_a, generation_b
FROM pairs
SEMI JOIN (
    SELECT pair_id FROM judgments GROUP BY pair_id, dimension HAVING count(DISTINCT choice) > 1
) USING (pair_id)
