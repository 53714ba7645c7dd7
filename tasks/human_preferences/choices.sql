-- Grain: one row a vote that counts and a dimension on which it chose, in the letters of its comparison.
--
-- Where an arena's ties are kept, both_bad is a tie: neither is preferred.
CREATE TABLE choices AS
SELECT
    row,
    vote_id,
    source,
    comparison_id,
    annotator,
    left(date, 7) AS month,
    dimension,
    CASE
        WHEN said IN ('tie', 'both_bad') THEN 'tie'
        WHEN (said = 'a') = flipped THEN 'b'
        ELSE 'a'
    END AS choice,
    confidence
FROM (
    SELECT *, 'musicality' AS dimension, musicality AS said, confidence_musicality AS confidence FROM cast_votes
    UNION ALL
    SELECT *, 'alignment', alignment, confidence_alignment FROM cast_votes
    UNION ALL
    SELECT *, 'overall', overall, confidence_overall FROM cast_votes
)
WHERE said IS NOT NULL
