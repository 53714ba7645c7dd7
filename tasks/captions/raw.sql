-- Grain: one row a draw of a request, by track, pipeline, segment, stage, span and sample.
SELECT
    pool.track_id AS clip_id,
    draws.pipeline,
    draws.segment,
    draws.ask AS stage,
    draws.span,
    draws.start_s,
    draws.end_s,
    draws.text,
    draws.share,
    draws.bounded,
    draws.annotator AS model,
    draws.prompt,
    draws.request_key,
    draws.draw AS sample,
    draws.flags,
    draws.notes,
    draws.reason,
    pool.clip_sha256 AS heard_sha256,
    $source AS source
FROM draws
JOIN pool USING (row)
JOIN pipelines ON draws.pipeline = pipelines.name
ORDER BY pool.row, pipelines.place, draws.segment, draws.ask, draws.span, draws.draw
