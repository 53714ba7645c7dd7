-- Grain: one row a usable prompt, with its modality and split.
--
-- A group of prompts that share words or reference audio has one place: the hash of the least of its names, so that a
-- prompt which shares nothing stays where it is when others come or go. `holds` is what a generation can be conditioned on; one that does not say was given all of that but the caption, which stands for the reference.
CREATE TABLE asked_prompts AS
SELECT
    prompts.*,
    media.clip_sha256 AS reference_sha256,
    coalesce(reference_caption, spoken_of.caption) AS caption,
    concat_ws('+', 'text', CASE WHEN lyrics IS NOT NULL THEN 'lyrics' END, CASE WHEN media.clip_sha256 IS NOT NULL
        THEN 'reference' END) AS usual,
    concat_ws('+', usual, CASE WHEN coalesce(reference_caption, spoken_of.caption) IS NOT NULL THEN 'caption' END)
        AS holds,
    CASE
        WHEN place < $train_upto THEN 'train'
        WHEN place < $validation_upto THEN 'validation'
        WHEN place < $test_upto THEN 'test'
        ELSE 'ood'
    END AS split
FROM prompts
JOIN (
    SELECT row, md5_number_upper(concat($seed::BIGINT, ':', min(name) OVER (PARTITION BY number)))
        / 18446744073709551616.0 AS place
    FROM prompt_groups
) USING (row)
LEFT JOIN media ON media.kind = 'reference' AND media.item = prompts.row
LEFT JOIN (
    SELECT heard_sha256, first(text ORDER BY pipeline, clip_id, segment) AS caption FROM spoken GROUP BY heard_sha256
) AS spoken_of ON spoken_of.heard_sha256 = media.clip_sha256
