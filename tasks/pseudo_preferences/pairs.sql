-- Grain: one row a pair to be judged, in the order of its prompt; the published table `pairs`.
--
-- Of the prompt, only what both generations were given is shown and published here; a caption stands after the text.
WITH chosen AS (
    SELECT candidates.*, string_split(conditions, '+') AS both_got
    FROM candidates
    JOIN takes USING (modality)
    QUALIFY row_number() OVER (PARTITION BY modality ORDER BY place, cosine DESC NULLS LAST, hash, pair_id) <= takes.take
)

SELECT
    pair_id,
    chosen.split,
    prompt_id,
    chosen.modality,
    concat_ws(
        E'\n\n',
        CASE WHEN list_contains(both_got, 'text') THEN asked_prompts.text END,
        CASE WHEN list_contains(both_got, 'caption') THEN concat('The reference clip in words: ', caption) END
    ) AS text,
    CASE WHEN list_contains(both_got, 'lyrics') THEN asked_prompts.lyrics END AS lyrics,
    CASE WHEN list_contains(both_got, 'lyrics') THEN voice_of(asked_prompts.lyrics) END AS vocals,
    CASE WHEN list_contains(both_got, 'reference') THEN asked_prompts.reference_sha256 END AS reference_sha256,
    conditions AS conditioned_on,
    generation_a,
    generation_b,
    model_a,
    model_b
FROM chosen
JOIN asked_prompts USING (prompt_id)
WHERE chosen.split = $split
ORDER BY prompt_row, hash, pair_id
