-- Grain: one row a prompt with its clips compared on $dimension; of rated clips, one row a prompt and split.
--
-- The score of a compared clip is its share of the weight of the votes on it, a tie counting half to each side; that of a
-- rated one its mean on the scale from 1 to 5. Ranks count from 1, the best.
WITH scored AS (
    SELECT
        'compared' AS kind,
        prompt_id,
        any_value(text) AS text,
        any_value(lyrics) AS lyrics,
        any_value(reference_clip) AS reference_clip,
        side.clip AS clip_id,
        sum(side.weight + weight_tie / 2) / sum(weight_a + weight_b + weight_tie) AS score
    FROM (
        SELECT *, unnest([{'clip': clip_a, 'weight': weight_a}, {'clip': clip_b, 'weight': weight_b}]) AS side
        FROM preferences
        JOIN comparisons USING (comparison_id)
        WHERE dimension = $dimension
    )
    GROUP BY prompt_id, side.clip
    UNION ALL
    SELECT 'rated', prompt_id, any_value(text), NULL, NULL, clip_id, any_value(rating)
    FROM ratings
    WHERE dimension = $dimension AND prompt_id IS NOT NULL
    GROUP BY prompt_id, clip_id
),

ranked AS (
    SELECT
        scored.*,
        clips.split,
        clips.clip_sha256,
        clips.model,
        rank() OVER (PARTITION BY kind, prompt_id, clips.split ORDER BY score DESC) AS place
    FROM scored
    JOIN clips USING (clip_id)
    WHERE clips.clip_sha256 IS NOT NULL
)

SELECT
    concat_ws('/', kind, CASE WHEN kind = 'rated' THEN ranked.split END, prompt_id) AS id,
    ranked.split,
    kind,
    any_value(text) AS text,
    any_value(lyrics) AS lyrics,
    any_value(reference.clip_sha256) AS reference_audio,
    list(ranked.clip_sha256 ORDER BY place, ranked.clip_id) AS audios,
    list(score ORDER BY place, ranked.clip_id) AS scores,
    list(place ORDER BY place, ranked.clip_id) AS ranks,
    list(ranked.model ORDER BY place, ranked.clip_id) AS models
FROM ranked
LEFT JOIN clips AS reference ON reference.clip_id = reference_clip
GROUP BY kind, prompt_id, ranked.split
HAVING count(*) > 1
