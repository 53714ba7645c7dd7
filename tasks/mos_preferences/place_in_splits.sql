-- Grain: one row a merged clip, with the split that its source's rule gives it (null where the publisher names none).
--
-- `by-content` places a whole content by the hash of its id, so no content crosses splits, not even from one listening
-- test to another, and a source that grows keeps the places of its earlier contents. A clip of unknown content is a
-- content of its own. `by-system` and `by-speaker` do the same with these; a clip of an unknown one has no split.
CREATE TABLE placed AS
SELECT
    merged.* EXCLUDE (split, kept_apart),
    CASE
        WHEN rules.rule = 'native' THEN merged.split
        WHEN rules.rule NOT LIKE 'by-%' THEN rules.rule
        WHEN place < train_upto THEN 'train'
        WHEN place < validation_upto THEN 'validation'
        WHEN place < test_upto THEN 'test'
        WHEN place IS NOT NULL THEN 'ood'
    END AS split
FROM (
    SELECT
        merged.*,
        CASE rule
            WHEN 'by-system' THEN 'system:' || system_id
            WHEN 'by-speaker' THEN 'speaker:' || speaker_id
            ELSE coalesce('content:' || content_id, 'file:' || file)
        END AS kept_apart,
        md5_number_upper($seed::BIGINT || ':' || dataset || ':' || kept_apart) / 18446744073709551616.0 AS place
    FROM merged
    JOIN split_rules USING (dataset)
) AS merged
JOIN split_rules AS rules USING (dataset)
