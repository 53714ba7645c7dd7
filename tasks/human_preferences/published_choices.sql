-- Grain: one row a published vote and a dimension on which it chose, in the letters of its comparison.
CREATE TABLE choices AS
SELECT * FROM (
    SELECT comparison_id, 'musicality' AS dimension, musicality AS choice, confidence_musicality AS confidence FROM votes
    UNION ALL
    SELECT comparison_id, 'alignment', alignment, confidence_alignment FROM votes
    UNION ALL
    SELECT comparison_id, 'overall', overall, confidence_overall FROM votes
)
WHERE choice IS NOT NULL
