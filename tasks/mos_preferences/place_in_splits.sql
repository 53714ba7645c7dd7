-- Grain: one row a merged clip, with the split that its source's rule gives it (null where the publisher names none).
--
-- `by-content` places a whole content by the hash of its id, so no content crosses splits, not even from one listening
-- test to another, and a source that grows keeps the places of its earlier contents. A clip of unknown content is a
-- content of its own.
CREATE TABLE placed AS
SELECT
    merged.* EXCLUDE (split),
    CASE rules.rule
        WHEN 'native' THEN merged.split
        WHEN 'by-content' THEN CASE
            WHEN place < train_upto THEN 'train'
            WHEN place < validation_upto THEN 'validation'
            WHEN place < test_upto THEN 'test'
            ELSE 'ood'
        END
        ELSE rules.rule
    END AS split
FROM (
    SELECT
        *,
        md5_number_upper(concat($seed::BIGINT, ':', dataset, ':',
            coalesce('content:' || content_id, 'file:' || file))) / 18446744073709551616.0 AS place
    FROM merged
) AS merged
JOIN split_rules AS rules USING (dataset)
