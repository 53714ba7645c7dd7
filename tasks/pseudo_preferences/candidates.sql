-- Grain: one row two generations of one prompt that may be compared.
--
-- Both were given the same of their prompt, so that neither is held to what it did not get.
-- Which of the two is a goes by hash, so no model stands first more often. `place` counts the pairs of one modality and
-- one pair of models: taking pairs by place spreads them evenly over the pairs of models.
CREATE TABLE candidates AS
WITH drawn AS (
    SELECT
        generation_id,
        prompt_id,
        model,
        generations.row,
        coalesce(conditioned_on, usual) AS conditions,
        md5_number_lower(concat($seed::BIGINT, ':', generation_id)) AS draw
    FROM generations
    JOIN asked_prompts USING (prompt_id)
    WHERE generations.row NOT IN (SELECT row FROM refused_generations)
),

compared AS (
    SELECT
        left(md5(concat(least(a.generation_id, b.generation_id), chr(10), greatest(a.generation_id, b.generation_id))),
            16) AS pair_id,
        asked.split,
        prompt_id,
        concat('text', CASE WHEN list_contains(string_split(conditions, '+'), 'lyrics') THEN '+lyrics' END,
            CASE WHEN list_contains(string_split(conditions, '+'), 'reference') THEN '+audio' END) AS modality,
        conditions,
        a.generation_id AS generation_a,
        b.generation_id AS generation_b,
        a.model AS model_a,
        b.model AS model_b,
        xor(a.draw, b.draw) AS hash,
        asked.row AS prompt_row
    FROM drawn AS a
    JOIN drawn AS b USING (prompt_id, conditions)
    JOIN asked_prompts AS asked USING (prompt_id)
    WHERE (a.draw < b.draw OR (a.draw = b.draw AND a.row < b.row)) AND ($same_model OR a.model <> b.model)
),

limited AS (
    SELECT *
    FROM compared
    QUALIFY $per_prompt IS NULL OR row_number() OVER (PARTITION BY prompt_id ORDER BY hash, pair_id) <= $per_prompt
)

SELECT
    *,
    row_number() OVER (
        PARTITION BY modality, least(model_a, model_b), greatest(model_a, model_b) ORDER BY hash, pair_id
    ) AS place
FROM limited
