-- Grain: one row a track without its voice that has at most $most_flags flags.
SELECT
    track_id AS id,
    split,
    clip_sha256 AS audio,
    tags,
    artist_id,
    duration_s,
    removed_db,
    residual_voice,
    flags,
    separator
FROM tracks
WHERE len(flags) <= $most_flags
