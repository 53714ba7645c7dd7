-- Grain: one row two generations of one prompt that may be compared.
--
-- Both were given the same of their prompt, so that neither is held to what it did not get.
-- Which of the two is a goes by hash, so no model stands first more often. `cosine` is there where embeddings are; it is
-- rounded, so that a model's last digits do not decide.
CREATE TABLE compared AS
WITH drawn AS (
    SELECT
        generation_id,
        prompt_id,
        model,
        generations.row,
        coalesce(conditioned_on, usual) AS conditions,
        md5_number_lower(concat($seed::BIGINT, ':', generation_id)) AS draw,
        embedding
    FROM generations
    JOIN asked_prompts USING (prompt_id)
    LEFT JOIN embeddings ON embeddings.row = generations.row
    WHERE generations.row NOT IN (SELECT row FROM refused_generations)
)

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
    round(list_cosine_similarity(a.embedding::DOUBLE[], b.embedding::DOUBLE[]), $decimals) AS cosine,
    asked.row AS prompt_row
FROM drawn AS a
JOIN drawn AS b USING (prompt_id, conditions)
JOIN asked_prompts AS asked USING (prompt_id)
WHERE (a.draw < b.draw OR (a.draw = b.draw AND a.row < b.row)) AND ($same_model OR a.model <> b.model)
