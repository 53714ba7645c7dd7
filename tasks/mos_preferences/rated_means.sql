-- Grain: one row a rated clip with its MOS, brought to a scale from 1 to 5.
--
-- Names of systems and contents are a dataset's own.
SELECT
    sample_id AS id,
    split,
    1 + 4 * (mos - scale_min) / (scale_max - scale_min) AS target,
    sample_id AS clip,
    clip_sha256 AS audio,
    dataset,
    subset,
    dataset || '/' || system_id AS system,
    dataset || '/' || content_id AS cluster
FROM ratings
