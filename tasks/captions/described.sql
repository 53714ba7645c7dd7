-- Grain: one row a caption: does it describe what was heard? Captions of a clip are drawn together.
SELECT
    concat(clip_id, ':', pipeline, ':', segment) AS id,
    split,
    true AS target,
    heard_sha256 AS audio,
    text AS caption,
    pipeline,
    clip_id AS cluster
FROM captions
