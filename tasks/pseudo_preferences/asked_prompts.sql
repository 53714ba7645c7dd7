-- Grain: one row a usable prompt, with its modality and split.
--
-- A group of prompts that share words or reference audio has one place: the hash of its name.
CREATE TABLE asked_prompts AS
SELECT
    prompts.*,
    media.clip_sha256 AS reference_sha256,
    concat('text', CASE WHEN lyrics IS NOT NULL THEN '+lyrics' END, CASE WHEN media.clip_sha256 IS NOT NULL
        THEN '+audio' END)
        AS modality,
    CASE
        WHEN place < $train_upto THEN 'train'
        WHEN place < $validation_upto THEN 'validation'
        WHEN place < $test_upto THEN 'test'
        ELSE 'ood'
    END AS split
FROM prompts
JOIN (
    SELECT row, md5_number_upper(concat($seed::BIGINT, ':', name)) / 18446744073709551616.0 AS place FROM prompt_groups
) USING (row)
LEFT JOIN media ON media.kind = 'reference' AND media.item = prompts.row
