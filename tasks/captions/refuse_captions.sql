-- Grain: one row a piece of a track without a caption, with the first fault that was found on its way.
WITH failed AS (
    SELECT
        row,
        pipeline,
        segment,
        first(reason ORDER BY ask, span) AS reason,
        first(concat(ask, ': ', detail) ORDER BY ask, span) AS detail,
        NULL AS same_as
    FROM answers
    WHERE reason IS NOT NULL
    GROUP BY row, pipeline, segment
),

refused AS (
    FROM failed
    UNION ALL
    SELECT
        texts.row,
        pipeline,
        segment,
        'near_duplicate' AS reason,
        concat('expected a caption of its own, found nearly that of ', pool.track_id) AS detail,
        pool.track_id AS same_as
    FROM texts
    JOIN pool ON texts.repeats_row = pool.row
    WHERE $refuse_repeats
)

SELECT
    'captions' AS "table",
    pool.track_id AS item,
    'captions' AS stage,
    refused.reason,
    concat(refused.pipeline, ', segment ', refused.segment, ', ', refused.detail) AS detail,
    pool.source_file AS file,
    pool.line,
    [{'kind': 'clip', 'id': pool.clip_sha256}, {'kind': 'track', 'id': refused.same_as}] AS made_from
FROM refused
JOIN pool USING (row)
JOIN pipelines ON refused.pipeline = pipelines.name
ORDER BY pool.row, pipelines.place, refused.segment
