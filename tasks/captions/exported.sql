-- Grain: one row a caption, of the stage $stage where that is not empty, with at most $most_flags flags.
SELECT
    concat(clip_id, ':', pipeline, ':', segment) AS id,
    split,
    heard_sha256 AS audio,
    file AS path,
    text AS caption,
    clip_id,
    pipeline,
    segment,
    start_s,
    end_s,
    tags,
    flags,
    model
FROM captions
WHERE
    $stage IN ('', stage)
    AND len(flags) + (repeats IS NOT NULL)::BIGINT <= $most_flags
