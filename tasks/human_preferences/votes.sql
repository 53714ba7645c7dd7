-- Grain: one row a vote that counts, in the letters of its comparison; the published table `votes`.
WITH said AS (
    SELECT
        row,
        max(choice) FILTER (dimension = 'musicality') AS musicality,
        max(choice) FILTER (dimension = 'alignment') AS alignment,
        max(choice) FILTER (dimension = 'overall') AS overall
    FROM choices
    GROUP BY row
)

SELECT
    vote_id,
    places.split,
    comparison_id,
    source,
    annotator,
    CASE WHEN flipped THEN 'ba' ELSE 'ab' END AS shown,
    said.musicality,
    confidence_musicality,
    said.alignment,
    confidence_alignment,
    said.overall,
    confidence_overall,
    date,
    CASE WHEN flipped THEN listened_b_s ELSE listened_a_s END AS listened_a_s,
    CASE WHEN flipped THEN listened_a_s ELSE listened_b_s END AS listened_b_s,
    feedback,
    source_file,
    line AS source_line,
    CASE WHEN flipped THEN model_b ELSE model_a END AS model_a,
    CASE WHEN flipped THEN model_a ELSE model_b END AS model_b
FROM cast_votes
JOIN said USING (row)
JOIN places USING (comparison_id)
WHERE places.split = $split
ORDER BY row
