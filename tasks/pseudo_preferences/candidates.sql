-- Grain: one row a pair that may be chosen: of each prompt no more than `per_prompt`.
--
-- `place` counts the pairs of one modality and one pair of models: taking pairs by place spreads them evenly over the
-- pairs of models. Nearer pairs come first, where the config asks for them.
CREATE TABLE candidates AS
WITH limited AS (
    SELECT *
    FROM compared
    QUALIFY $per_prompt IS NULL
        OR row_number() OVER (PARTITION BY prompt_id ORDER BY cosine DESC NULLS LAST, hash, pair_id) <= $per_prompt
)

SELECT
    *,
    row_number() OVER (
        PARTITION BY modality, least(model_a, model_b), greatest(model_a, model_b)
        ORDER BY cosine DESC NULLS LAST, hash, pair_id
    ) AS place
FROM limited
