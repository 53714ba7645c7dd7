-- Grain: one row a pair to be judged, in the order of its prompt; the published table `pairs`.
WITH chosen AS (
    SELECT candidates.*
    FROM candidates
    JOIN takes USING (modality)
    QUALIFY row_number() OVER (PARTITION BY modality ORDER BY place, hash, pair_id) <= takes.take
)

SELECT
    pair_id,
    chosen.split,
    prompt_id,
    chosen.modality,
    asked_prompts.text,
    asked_prompts.lyrics,
    asked_prompts.reference_sha256,
    generation_a,
    generation_b,
    model_a,
    model_b
FROM chosen
JOIN asked_prompts USING (prompt_id)
WHERE chosen.split = $split
ORDER BY prompt_row, hash, pair_id
