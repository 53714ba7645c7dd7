-- Grain: one row a track: is there a voice? None should be left. Tracks of an artist are drawn together.
SELECT
    track_id AS id,
    split,
    false AS target,
    clip_sha256 AS audio,
    CASE WHEN len(flags) > 0 THEN 'flagged' ELSE 'unflagged' END AS flags,
    separator,
    coalesce(artist_id, track_id) AS cluster
FROM tracks
