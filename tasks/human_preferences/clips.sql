-- Grain: one row a clip that a kept vote or rating names; the published table `clips`, without its audio.
WITH named AS (
    SELECT clip_a AS clip_id, source, model_a AS model, audio_a AS file, places.split, row, 0 AS kind
    FROM cast_votes JOIN places USING (comparison_id)
    UNION ALL
    SELECT clip_b, source, model_b, audio_b, places.split, row, 0
    FROM cast_votes JOIN places USING (comparison_id)
    UNION ALL
    SELECT concat(source, '/', reference), source, NULL, reference, places.split, row, 0
    FROM cast_votes JOIN places USING (comparison_id)
    WHERE reference IS NOT NULL
    UNION ALL
    SELECT clip_id, source, system, file, rated_places.split, row, 1
    FROM rated JOIN rated_places USING (row)
),

once AS (
    SELECT
        clip_id,
        first(source ORDER BY kind, row) AS source,
        first(model ORDER BY model IS NULL, kind, row) AS model,
        first(file ORDER BY kind, row) AS file,
        first(split ORDER BY kind, row) AS split
    FROM named
    GROUP BY clip_id
)

SELECT
    clip_id,
    split,
    once.source,
    coalesce(by_model.name, once.source) AS terms,
    coalesce(by_model.licence, by_source.licence) AS licence,
    model,
    once.file,
    clip_sha256,
    duration_s,
    sample_rate_hz,
    channels
FROM once
LEFT JOIN media ON media.source = once.source AND media.file = once.file
LEFT JOIN licences AS by_model ON by_model.name = once.model
LEFT JOIN licences AS by_source ON by_source.name = once.source
WHERE split = $split
ORDER BY clip_id
