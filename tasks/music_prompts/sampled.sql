-- Grain: one row a tag and a track that carries it and has audio: the first tracks of each popular tag by hash.
SELECT category, tag, track_id, file, place
FROM (
    SELECT
        category,
        tag,
        tracks.track_id,
        tracks.file,
        count(*) OVER (PARTITION BY category, tag) AS held,
        row_number() OVER (
            PARTITION BY category, tag
            ORDER BY
                NOT tracks.has_audio, md5_number_lower(concat($seed::BIGINT, ':', tag, ':', tracks.track_id)), track_id
        ) AS place,
        tracks.has_audio
    FROM track_tags
    JOIN tracks ON tracks.row = track_tags.track
)
WHERE held >= $popularity AND has_audio AND place <= $tracks
ORDER BY category, tag, place
