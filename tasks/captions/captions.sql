-- Grain: one row a caption of the split $split, by track, pipeline and segment.
WITH heard AS (
    SELECT
        row,
        pipeline,
        segment,
        list(start_s ORDER BY span) AS start_s,
        list(end_s ORDER BY span) AS end_s
    FROM answers
    WHERE ask = 'listen'
    GROUP BY row, pipeline, segment
)

SELECT
    pool.track_id AS clip_id,
    texts.pipeline,
    texts.segment,
    pool.split,
    texts.text,
    answers.ask AS stage,
    answers.annotator AS model,
    answers.prompt,
    answers.request_key,
    answers.draw AS sample,
    list_concat(answers.flags, coalesce(judged.flags, [])) AS flags,
    repeated.track_id AS repeats,
    pool.clip_sha256 AS heard_sha256,
    pool.heard,
    heard.start_s,
    heard.end_s,
    pool.audio AS file,
    pool.tags,
    pool.licence AS track_licence,
    $source AS source,
    pool.source_file,
    pool.line AS source_line
FROM texts
JOIN pool USING (row)
JOIN pipelines ON texts.pipeline = pipelines.name
JOIN answers
    ON
        texts.row = answers.row
        AND texts.pipeline = answers.pipeline
        AND texts.segment = answers.segment
        AND pipelines.last = answers.ask
JOIN heard ON texts.row = heard.row AND texts.pipeline = heard.pipeline AND texts.segment = heard.segment
LEFT JOIN answers AS judged
    ON
        texts.row = judged.row
        AND texts.pipeline = judged.pipeline
        AND texts.segment = judged.segment
        AND judged.ask = 'judge'
LEFT JOIN pool AS repeated ON texts.repeats_row = repeated.row
WHERE pool.split = $split AND (texts.repeats_row IS NULL OR NOT $refuse_repeats)
ORDER BY pool.row, pipelines.place, texts.segment
