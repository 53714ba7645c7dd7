-- Grain: one row a rated clip and dimension; the published table `ratings`.
SELECT
    concat(clip_id, '-', dimension) AS rating_id,
    rated_places.split,
    source,
    sources.task,
    clip_id,
    system,
    prompt_key AS prompt_id,
    prompt_id AS source_prompt_id,
    text,
    dimension,
    score,
    1 + 4 * (score - low) / (high - low) AS rating,
    votes,
    score_std,
    source_file,
    line AS source_line
FROM (
    SELECT
        *, 'musicality' AS dimension, musicality AS score, votes_musicality AS votes, std_musicality AS score_std
    FROM rated
    UNION ALL
    SELECT *, 'alignment', alignment, votes_alignment, std_alignment FROM rated
)
JOIN rated_places USING (row)
JOIN sources USING (source)
WHERE score IS NOT NULL AND rated_places.split = $split
ORDER BY row, dimension DESC
