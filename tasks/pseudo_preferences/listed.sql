-- Grain: one row a prompt and what its generations were given, with all of them that have a label on $dimension.
--
-- A score is the share of its pairs that a generation wins, a tie counting half; ranks count from 1, the best.
WITH won AS (
    SELECT
        split,
        prompt_id,
        any_value(text) AS text,
        any_value(lyrics) AS lyrics,
        any_value(reference_sha256) AS reference_audio,
        any_value(modality) AS modality,
        conditioned_on,
        side.generation AS generation_id,
        avg(CASE WHEN choice = 'tie' THEN 0.5 WHEN choice = side.letter THEN 1.0 ELSE 0.0 END) AS score,
        count(*) AS pairs
    FROM (
        SELECT
            pairs.*,
            CASE $dimension WHEN 'musicality' THEN musicality ELSE alignment END AS choice,
            unnest([{'letter': 'a', 'generation': labels.generation_a}, {'letter': 'b', 'generation': labels.generation_b}])
                AS side
        FROM labels
        JOIN pairs USING (pair_id)
    )
    WHERE choice IS NOT NULL
    GROUP BY split, prompt_id, conditioned_on, side.generation
),

ranked AS (
    SELECT
        won.*,
        clip_sha256,
        model,
        rank() OVER (PARTITION BY won.prompt_id, conditioned_on ORDER BY score DESC) AS place
    FROM won
    JOIN clips USING (generation_id)
)

SELECT
    concat_ws('/', prompt_id, conditioned_on) AS id,
    any_value(split) AS split,
    any_value(text) AS text,
    any_value(lyrics) AS lyrics,
    any_value(reference_audio) AS reference_audio,
    any_value(modality) AS modality,
    list(clip_sha256 ORDER BY place, generation_id) AS audios,
    list(score ORDER BY place, generation_id) AS scores,
    list(place ORDER BY place, generation_id) AS ranks,
    list(pairs ORDER BY place, generation_id) AS pairs,
    list(model ORDER BY place, generation_id) AS models
FROM ranked
GROUP BY prompt_id, conditioned_on
