-- Grain: one row a caption whose clip cannot be used, with the first reason that applies.
CREATE TABLE refused AS
WITH measured AS (
    SELECT
        captions.*,
        media.* EXCLUDE (row),
        first(captions.source) OVER same_clip AS first_source,
        row_number() OVER same_words AS occurrence
    FROM captions
    JOIN media USING (row)
    WINDOW
        same_clip AS (PARTITION BY coalesce(clip_sha256, row::VARCHAR) ORDER BY row),
        same_words AS (PARTITION BY coalesce(clip_sha256, row::VARCHAR), trim(text) ORDER BY row)
)

SELECT
    row,
    item,
    CASE
        WHEN reason IS NOT NULL THEN reason
        WHEN duration_s < $shortest_s THEN 'audio_too_short'
        WHEN peak_dbfs < $silence_dbfs THEN 'audio_silent'
        WHEN source <> first_source THEN 'duplicate_audio'
        ELSE 'duplicate'
    END AS reason,
    CASE
        WHEN reason IS NOT NULL THEN detail
        WHEN duration_s < $shortest_s THEN concat('expected at least ', $shortest_s, ' s, found ', round(duration_s, 3))
        WHEN peak_dbfs < $silence_dbfs
            THEN concat('expected a peak above ', $silence_dbfs, ' dBFS, found ', round(peak_dbfs, 1))
        WHEN source <> first_source
            THEN concat('expected audio that no other source has, found the bytes of a clip of ', first_source)
        ELSE 'expected each caption of a clip once, found it again'
    END AS detail,
    source_file,
    line,
    [{'kind': 'clip', 'id': clip_sha256}] AS made_from
FROM measured
WHERE
    reason IS NOT NULL
    OR duration_s < $shortest_s
    OR peak_dbfs < $silence_dbfs
    OR source <> first_source
    OR occurrence > 1
