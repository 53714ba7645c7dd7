-- Grain: one row an example caption of a triplet.
--
-- The captions of a set stand on a ring by hash; a triplet takes those that follow its own place. A caption that comes
-- or goes changes the examples only of triplets right before it.
WITH fit AS (
    SELECT pipeline, item, md5_number_lower(concat($seed::BIGINT, ':', pipeline, ':', item)) AS hash
    FROM captions
    WHERE NOT voices AND length(text) <= $longest
),

ring AS (
    SELECT
        pipeline,
        item,
        hash,
        row_number() OVER (PARTITION BY pipeline ORDER BY hash, item) - 1 AS seat,
        count(*) OVER (PARTITION BY pipeline) AS held
    FROM fit
),

starts AS (
    SELECT
        queue.triplet_id,
        pipelines.pipeline,
        pipelines.held,
        md5_number_lower(concat($seed::BIGINT, ':shots:', queue.triplet_id)) AS hash
    FROM queue
    CROSS JOIN (SELECT DISTINCT pipeline, held FROM ring) AS pipelines
),

found AS (
    SELECT starts.triplet_id, starts.pipeline, starts.held, coalesce(ring.seat, starts.held - 1) AS seat
    FROM starts
    ASOF LEFT JOIN ring ON starts.pipeline = ring.pipeline AND starts.hash >= ring.hash
),

taken AS (
    SELECT triplet_id, pipeline, (seat + step) % held AS seat
    FROM found, unnest(range(1, 1 + least($shots::BIGINT, held))) AS steps (step)
)

SELECT
    taken.triplet_id,
    row_number() OVER (PARTITION BY taken.triplet_id ORDER BY md5(concat_ws(':', taken.triplet_id, ring.pipeline, ring.item)))
        AS place,
    ring.pipeline,
    ring.item
FROM taken
JOIN ring ON ring.pipeline = taken.pipeline AND ring.seat = taken.seat
ORDER BY taken.triplet_id, place
