-- Grain: one row a tag and a track with audio, to be asked about: of each popular tag the first tracks by hash that
-- carry it, and, if there are any, as many as wanted that do not.
--
-- Those without a tag come in one order for all tags, so that few files are heard for many: among the first `carriers` and
-- `$untagged` of that order stand enough, as only `carriers` tracks carry the tag.
WITH carrying AS (
    SELECT category, tag, track_id, file, place, carriers
    FROM (
        SELECT
            category,
            tag,
            tracks.track_id,
            tracks.file,
            count(*) OVER (PARTITION BY category, tag) AS carriers,
            row_number() OVER (
                PARTITION BY category, tag
                ORDER BY
                    NOT tracks.has_audio, md5_number_lower(concat($seed::BIGINT, ':', tag, ':', tracks.track_id)), track_id
            ) AS place,
            tracks.has_audio
        FROM track_tags
        JOIN tracks ON tracks.row = track_tags.track
    )
    WHERE carriers >= $popularity AND has_audio AND place <= $tracks
),

ordered AS (
    SELECT
        row,
        track_id,
        file,
        row_number() OVER (ORDER BY md5_number_lower(concat($seed::BIGINT, '::', track_id)), track_id, row) AS rank
    FROM tracks
    WHERE has_audio
),

without AS (
    SELECT
        popular.category,
        popular.tag,
        ordered.track_id,
        ordered.file,
        row_number() OVER (PARTITION BY popular.category, popular.tag ORDER BY ordered.rank) AS place
    FROM (SELECT category, tag, any_value(carriers) AS carriers FROM carrying GROUP BY category, tag) AS popular
    JOIN ordered ON ordered.rank <= popular.carriers + $untagged
    ANTI JOIN track_tags
        ON track_tags.track = ordered.row AND track_tags.category = popular.category AND track_tags.tag = popular.tag
    QUALIFY place <= $untagged
)

SELECT category, tag, track_id, file, place, true AS carried FROM carrying
UNION ALL
SELECT category, tag, track_id, file, place, false AS carried FROM without
ORDER BY category, tag, carried DESC, place
