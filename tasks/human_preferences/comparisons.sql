-- Grain: one row a comparison; the published table `comparisons`.
SELECT
    comparison_id,
    places.split,
    cast_votes.source,
    sources.task,
    prompt_key AS prompt_id,
    prompt_id AS source_prompt_id,
    modality,
    vocals,
    text,
    lyrics,
    CASE WHEN reference IS NOT NULL THEN concat(cast_votes.source, '/', reference) END AS reference_clip,
    clip_a,
    clip_b,
    model_a,
    model_b,
    month,
    votes
FROM cast_votes
JOIN places USING (comparison_id)
JOIN sources ON sources.source = cast_votes.source
JOIN (
    SELECT comparison_id, min(left(date, 7)) AS month, count(*) AS votes
    FROM cast_votes
    GROUP BY comparison_id
) USING (comparison_id)
WHERE is_first AND places.split = $split
ORDER BY row
