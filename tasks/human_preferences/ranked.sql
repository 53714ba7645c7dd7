-- Grain: one row a vote on clips of two known systems, and a dimension.
SELECT
    concat(votes.source, ', ', vote.dimension) AS board,
    comparisons.modality,
    coalesce(votes.model_a, comparisons.model_a) AS system_a,
    coalesce(votes.model_b, comparisons.model_b) AS system_b,
    vote.choice AS preference,
    comparisons.prompt_id AS cluster
FROM (
    SELECT
        *,
        unnest([
            {'dimension': 'musicality', 'choice': musicality},
            {'dimension': 'alignment', 'choice': alignment},
            {'dimension': 'overall', 'choice': overall}
        ]) AS vote
    FROM votes
) AS votes
JOIN comparisons USING (comparison_id)
WHERE vote.choice IS NOT NULL AND system_a <> system_b
