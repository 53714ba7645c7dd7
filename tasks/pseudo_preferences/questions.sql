-- Grain: one row a pair to be judged, with all that the judge gets. Pairs of a prompt follow each other, while its clips
-- are still at hand.
SELECT
    pairs.*,
    a.clip_sha256 AS a_sha256,
    a.duration_s AS a_duration_s,
    a.file AS a_file,
    b.clip_sha256 AS b_sha256,
    b.duration_s AS b_duration_s,
    b.file AS b_file,
    prompts.reference_audio AS reference_file,
    media.duration_s AS reference_duration_s
FROM pairs
JOIN clips AS a ON a.generation_id = pairs.generation_a
JOIN clips AS b ON b.generation_id = pairs.generation_b
JOIN prompts ON prompts.prompt_id = pairs.prompt_id
LEFT JOIN media ON media.kind = 'reference' AND media.item = prompts.row
WHERE prompts.row NOT IN (SELECT row FROM refused_prompts)
ORDER BY pairs.prompt_id, pairs.pair_id
