-- Grain: one row a track that can be captioned, with its split and what will be heard of it, in the list's order.
--
-- A track's place is the hash of its artist, or of itself where none is known: an artist's tracks share a split.
SELECT
    row,
    track_id,
    tags,
    audio,
    source_file,
    line,
    CASE
        WHEN place < $train_upto THEN 'train'
        WHEN place < $validation_upto THEN 'validation'
        WHEN place < $test_upto THEN 'test'
        ELSE 'ood'
    END AS split,
    clip_sha256,
    duration_s,
    heard,
    path
FROM (
    SELECT
        tracks.*,
        media.* EXCLUDE (row),
        md5_number_upper(concat($seed::BIGINT, ':', coalesce('artist:' || artist_id, 'track:' || track_id)))
            / 18446744073709551616.0 AS place
    FROM tracks
    JOIN media USING (row)
)
WHERE row NOT IN (SELECT row FROM refused_tracks)
ORDER BY row
