-- Grain: one row a caption of a segment of the split $split, or of any, with its recording as its group.
SELECT
    concat(captions.clip_id, '/', captions.pipeline) AS item,
    segments.file,
    captions.text,
    segments.recording_sha256,
    row_number() OVER (ORDER BY captions.split, captions.clip_id, captions.pipeline) AS line
FROM captions
JOIN segments USING (clip_id)
WHERE $split IS NULL OR captions.split = $split
ORDER BY line
