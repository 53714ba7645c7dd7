-- Grain: one row a track whose audio cannot be used, with the first reason that applies.
CREATE TABLE refused_tracks AS
WITH found AS (
    SELECT
        tracks.*,
        media.* EXCLUDE (row),
        row_number() OVER same_audio AS occurrence,
        first(track_id) OVER same_audio AS first_heard
    FROM tracks
    JOIN media USING (row)
    WINDOW same_audio AS (PARTITION BY coalesce(clip_sha256, row::VARCHAR) ORDER BY row)
)

SELECT
    row,
    track_id,
    CASE
        WHEN reason IS NOT NULL THEN reason
        WHEN duration_s < $shortest_s THEN 'audio_too_short'
        WHEN peak_dbfs < $silence_dbfs THEN 'audio_silent'
        ELSE 'duplicate_audio'
    END AS reason,
    CASE
        WHEN reason IS NOT NULL THEN detail
        WHEN duration_s < $shortest_s THEN concat('expected at least ', $shortest_s, ' s, found ', round(duration_s, 3))
        WHEN peak_dbfs < $silence_dbfs
            THEN concat('expected a peak above ', $silence_dbfs, ' dBFS, found ', round(peak_dbfs, 1))
        ELSE concat('expected audio that no other track has, found the bytes of ', first_heard)
    END AS detail,
    source_file,
    line,
    [
        {'kind': 'clip', 'id': clip_sha256},
        {'kind': 'track', 'id': CASE WHEN occurrence > 1 THEN first_heard END}
    ] AS made_from
FROM found
WHERE reason IS NOT NULL OR duration_s < $shortest_s OR peak_dbfs < $silence_dbfs OR occurrence > 1
