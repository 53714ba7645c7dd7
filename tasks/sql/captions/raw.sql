-- Grain: one row a request of a stage, by track, pipeline, segment, stage and span.
SELECT
    pool.track_id AS clip_id,
    said.pipeline,
    said.segment,
    said.stage,
    said.span,
    said.start_s,
    said.end_s,
    said.text,
    said.model,
    said.prompt,
    said.request_key,
    said.sample,
    said.flags,
    said.notes,
    said.reason,
    $source AS source
FROM said
JOIN pool USING (row)
JOIN pipelines ON said.pipeline = pipelines.name
ORDER BY pool.row, pipelines.place, said.segment, said.stage, said.span
