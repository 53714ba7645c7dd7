-- Grain: one row a pair or rating of `training` whose clips are at hand.
SELECT
    training.row_id AS id,
    training.split,
    training.kind,
    training.dimension,
    training.text,
    training.lyrics,
    reference.clip_sha256 AS reference_audio,
    clip.clip_sha256 AS audio,
    other.clip_sha256 AS other_audio,
    training.rating,
    training.confidence
FROM training
JOIN clips AS clip ON clip.clip_id = training.clip
LEFT JOIN clips AS other ON other.clip_id = training.other_clip
LEFT JOIN clips AS reference ON reference.clip_id = training.reference_clip
WHERE clip.clip_sha256 IS NOT NULL AND (training.other_clip IS NULL OR other.clip_sha256 IS NOT NULL)
