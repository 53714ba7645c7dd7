-- Grain: one row a rated clip with its MOS, brought to a scale from 1 to 5.
--
-- Names of systems are a listening test's own, names of contents a dataset's.
SELECT
    sample_id AS id,
    split,
    1 + 4 * (mos - scale_min) / (scale_max - scale_min) AS target,
    sample_id AS clip,
    clip_sha256 AS audio,
    dataset,
    subset,
    concat_ws('/', dataset, subset) AS test,
    CASE WHEN system_id IS NOT NULL THEN concat_ws('/', dataset, subset, system_id) END AS system,
    dataset || '/' || content_id AS cluster
FROM ratings
