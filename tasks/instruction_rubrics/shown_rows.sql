-- Grain: one row a sample of `$keys` in one of its languages, with its items and their answers in words
WITH wanted AS (SELECT * FROM samples WHERE sample_id IN (SELECT unnest($keys))),

once AS (SELECT * FROM wanted QUALIFY language = min(language) OVER (PARTITION BY sample_id))

SELECT
    once.*,
    listed.items_shown
FROM once
JOIN (
    SELECT
        labels.sample_id,
        string_agg(
            concat(labels.item, '. ', items.question, ' ', CASE WHEN labels.answer THEN 'Yes' ELSE 'No' END, ': ',
                labels.rationale),
            chr(10) ORDER BY labels.item
        ) AS items_shown
    FROM labels
    JOIN once ON labels.sample_id = once.sample_id AND labels.language = once.language
    JOIN items
        ON
            once.instruction_id = items.instruction_id
            AND labels.item = items.item
            AND labels.language = items.language
    GROUP BY labels.sample_id
) AS listed USING (sample_id)
