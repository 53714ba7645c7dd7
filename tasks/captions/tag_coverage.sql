-- Grain: one row a pipeline and tag that a captioned track carries or a caption names.
WITH carried AS (
    SELECT
        texts.row,
        texts.pipeline,
        texts.segment,
        unnest(pool.tags) AS tag,
        true AS carries
    FROM texts
    JOIN pool USING (row)
    WHERE texts.repeats_row IS NULL OR NOT $refuse_repeats
),

named AS (
    SELECT
        row,
        pipeline,
        segment,
        unnest(named) AS tag,
        true AS names
    FROM texts
    WHERE repeats_row IS NULL OR NOT $refuse_repeats
),

counted AS (
    SELECT
        pipeline,
        tag,
        count(*) FILTER (WHERE carries) AS captions,
        count(*) FILTER (WHERE carries AND names) AS mentions,
        count(*) FILTER (WHERE names AND NOT carries) AS elsewhere
    FROM (
        SELECT
            pipeline,
            tag,
            coalesce(carries, false) AS carries,
            coalesce(names, false) AS names
        FROM carried
        FULL JOIN named USING (row, pipeline, segment, tag)
    )
    GROUP BY pipeline, tag
)

SELECT
    pipeline,
    split_part(tag, '---', 1) AS category,
    split_part(tag, '---', 2) AS tag,
    captions,
    mentions,
    elsewhere
FROM counted
ORDER BY pipeline, category, counted.tag
