-- Grain: one row a usable prompt, with its modality and split.
--
-- A prompt's place is the hash of what it says, or of its reference audio: prompts that say the same share a split.
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
FROM (
    SELECT
        prompts.*,
        md5_number_upper(concat($seed::BIGINT, ':', coalesce(heard.clip_sha256, concat(text, chr(10), lyrics))))
            / 18446744073709551616.0 AS place
    FROM prompts
    LEFT JOIN media AS heard ON heard.kind = 'reference' AND heard.item = prompts.row
) AS prompts
LEFT JOIN media ON media.kind = 'reference' AND media.item = prompts.row
WHERE prompts.row NOT IN (SELECT row FROM refused_prompts)
