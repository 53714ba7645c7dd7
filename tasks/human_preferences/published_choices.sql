-- Grain: one row a published vote and a dimension on which it chose, in the letters of its comparison.
CREATE TABLE choices AS
SELECT * FROM (
    SELECT vote_id, comparison_id, split, 'musicality' AS dimension, musicality AS choice,
        confidence_musicality AS confidence
    FROM votes
    UNION ALL
    SELECT vote_id, comparison_id, split, 'alignment', alignment, confidence_alignment FROM votes
    UNION ALL
    SELECT vote_id, comparison_id, split, 'overall', overall, confidence_overall FROM votes
)
WHERE choice IS NOT NULL
