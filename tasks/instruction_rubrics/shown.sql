-- Grain: one row a sample in one language, with its items and their answers in words.
CREATE VIEW shown AS
SELECT
    samples.*,
    listed.items_shown
FROM samples
JOIN (
    SELECT
        labels.sample_id,
        string_agg(
            concat(labels.item, '. ', items.question, ' ', CASE WHEN labels.answer THEN 'Yes' ELSE 'No' END, ': ',
                labels.rationale),
            chr(10) ORDER BY labels.item
        ) AS items_shown
    FROM labels
    JOIN samples ON labels.sample_id = samples.sample_id AND labels.language = samples.language
    JOIN items
        ON
            samples.instruction_id = items.instruction_id
            AND labels.item = items.item
            AND labels.language = items.language
    WHERE labels.language = (SELECT min(language) FROM samples)
    GROUP BY labels.sample_id
) AS listed USING (sample_id)
WHERE samples.language = (SELECT min(language) FROM samples)
