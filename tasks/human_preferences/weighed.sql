-- Grain: one row a comparison and dimension, with the weights of the choices and the greatest of them.
--
-- A vote weighs its confidence; one without confidence weighs 3, the middle of the scale. Where the greatest weight is
-- that of two choices, neither clip is preferred.
CREATE TABLE weighed AS
SELECT
    *,
    CASE
        WHEN weight_a > greatest(weight_b, weight_tie) THEN 'a'
        WHEN weight_b > greatest(weight_a, weight_tie) THEN 'b'
        ELSE 'tie'
    END AS preference
FROM (
    SELECT
        comparison_id,
        dimension,
        avg(confidence) AS confidence,
        count(*) AS votes,
        coalesce(sum(coalesce(confidence, 3.0)) FILTER (choice = 'a'), 0.0) AS weight_a,
        coalesce(sum(coalesce(confidence, 3.0)) FILTER (choice = 'b'), 0.0) AS weight_b,
        coalesce(sum(coalesce(confidence, 3.0)) FILTER (choice = 'tie'), 0.0) AS weight_tie,
        count(DISTINCT choice) = 1 AS unanimous
    FROM choices
    GROUP BY comparison_id, dimension
)
