-- Grain: one row a usable clip of one split, in the order of the sources; the published table `ratings`, with the path of its converted audio
-- in place of the audio.
SELECT
    concat(placed.dataset, '/', file) AS sample_id,
    placed.dataset,
    subset,
    split,
    file,
    mos,
    votes,
    mos_std,
    mos_std / sqrt(votes) AS mos_se,
    scale_min,
    scale_max,
    system_id,
    speaker_id,
    content_id,
    condition_id,
    media.clip_sha256,
    media.duration_s,
    media.sample_rate_hz,
    media.channels,
    source_file,
    line AS source_line,
    media.converted
FROM placed
JOIN scales
    ON placed.dataset = scales.dataset AND (scales.test IS NULL OR scales.test = placed.subset)
LEFT JOIN media USING (row)
WHERE split = $split AND row NOT IN (SELECT row FROM refused)
ORDER BY row
