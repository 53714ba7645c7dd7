-- Grain: one row a clip of a prompt by a model that a released label compares; the published table `clips`.
SELECT
    generation_id,
    split,
    prompt_id,
    model,
    file,
    media.clip_sha256,
    media.duration_s,
    media.sample_rate_hz,
    media.channels,
    media.peak_dbfs,
    media.loudness_lufs,
    source_file,
    line AS source_line
FROM (
    SELECT *, 'a' AS side, generation_a AS generation_id, model_a AS model, audio_a AS file FROM taken
    UNION ALL
    SELECT *, 'b', generation_b, model_b, audio_b FROM taken
)
JOIN media USING (file)
WHERE split = $split
QUALIFY row_number() OVER (PARTITION BY generation_id ORDER BY row, side) = 1
ORDER BY row, side
