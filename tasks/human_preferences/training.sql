-- Grain: one row a sample and dimension with a preferred clip, or a rating; the published table `training`.
SELECT
    sample_id AS row_id,
    samples.split,
    comparison_id,
    vote_id,
    'pair' AS kind,
    source,
    dimension,
    text,
    lyrics,
    reference_clip,
    CASE preference WHEN 'a' THEN clip_a ELSE clip_b END AS clip,
    CASE preference WHEN 'a' THEN clip_b ELSE clip_a END AS other_clip,
    NULL::DOUBLE AS rating,
    confidence
FROM samples
JOIN comparisons USING (comparison_id)
WHERE preference <> 'tie' AND samples.split = $split AND (source, dimension) NOT IN (FROM untrained)
UNION ALL
SELECT rating_id, split, NULL, NULL, 'rating', source, dimension, text, NULL, NULL, clip_id, NULL, rating, NULL
FROM ratings
WHERE split = $split AND (source, dimension) NOT IN (FROM untrained)
ORDER BY kind, row_id
