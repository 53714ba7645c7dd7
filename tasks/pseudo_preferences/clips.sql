-- Grain: one row a generation that can be judged, in the order of its table; the published table `clips`.
SELECT
    generation_id,
    asked_prompts.split,
    prompt_id,
    model,
    audio AS file,
    media.clip_sha256,
    media.duration_s,
    media.sample_rate_hz,
    media.channels,
    media.peak_dbfs,
    media.loudness_lufs,
    generations.source_file,
    generations.line AS source_line
FROM generations
JOIN media ON media.kind = 'generation' AND media.item = generations.row
JOIN asked_prompts USING (prompt_id)
WHERE generations.row NOT IN (SELECT row FROM refused_generations) AND asked_prompts.split = $split
ORDER BY generations.row
