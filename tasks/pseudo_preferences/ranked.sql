-- Grain: one row a label on two generations of different systems, and a dimension.
SELECT
    label.dimension AS board,
    modality,
    model_a AS system_a,
    model_b AS system_b,
    label.choice AS preference,
    prompt_id AS cluster
FROM (
    SELECT
        *,
        unnest([
            {'dimension': 'musicality', 'choice': musicality}, {'dimension': 'alignment', 'choice': alignment}
        ]) AS label
    FROM labels
)
WHERE label.choice IS NOT NULL AND model_a <> model_b
