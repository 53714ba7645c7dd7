-- Grain: one row a track whose audio is fit, with its split and what was measured of its audio, in the list's order.
--
-- A track's place is the hash of its artist, or of itself where none is known: an artist's tracks share a split.
SELECT
    * EXCLUDE (place, reason, detail),
    CASE
        WHEN place < $train_upto THEN 'train'
        WHEN place < $validation_upto THEN 'validation'
        WHEN place < $test_upto THEN 'test'
        ELSE 'ood'
    END AS split
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
