-- Grain: one row a vote on musicality or alignment, of two clips that have a name, in the letters that were shown.
WITH turned AS (
    SELECT
        votes.* EXCLUDE (model_a, model_b),
        comparisons.* EXCLUDE (comparison_id, split, source, month, votes, model_a, model_b),
        coalesce(votes.model_a, comparisons.model_a) AS model_a,
        coalesce(votes.model_b, comparisons.model_b) AS model_b,
        shown = 'ba' AS other
    FROM votes
    JOIN comparisons USING (comparison_id)
    WHERE coalesce(musicality, alignment) IS NOT NULL
)

SELECT
    vote_id AS id,
    turned.split,
    CASE WHEN other THEN b.file ELSE a.file END AS audio_a,
    CASE WHEN other THEN a.file ELSE b.file END AS audio_b,
    text,
    lyrics,
    source_prompt_id AS prompt_id,
    reference.file AS reference,
    CASE WHEN musicality = 'tie' THEN 'both' WHEN (musicality = 'a') = other THEN 'model_b' WHEN musicality IS NOT NULL
        THEN 'model_a' END AS musicality,
    confidence_musicality,
    CASE WHEN alignment = 'tie' THEN 'both' WHEN (alignment = 'a') = other THEN 'model_b' WHEN alignment IS NOT NULL
        THEN 'model_a' END AS alignment,
    confidence_alignment,
    annotator,
    CASE WHEN other THEN model_b ELSE model_a END AS model_a,
    CASE WHEN other THEN model_a ELSE model_b END AS model_b,
    CASE task WHEN 'cmi-pref' THEN 'cmi-arena-annotation' ELSE turned.source END AS source,
    date,
    feedback,
    CASE WHEN other THEN listened_b_s ELSE listened_a_s END AS listened_a_s,
    CASE WHEN other THEN listened_a_s ELSE listened_b_s END AS listened_b_s
FROM turned
JOIN clips AS a ON a.clip_id = clip_a
JOIN clips AS b ON b.clip_id = clip_b
LEFT JOIN clips AS reference ON reference.clip_id = reference_clip
WHERE a.file IS NOT NULL AND b.file IS NOT NULL
ORDER BY source_file, source_line
