-- Grain: one row a usable released label in its split, by the columns of the tables `pairs` and `labels`.
--
-- A group has one split: the strongest that the release names for one of its rows, else one by the hash of its least name.
CREATE TABLE taken AS
SELECT
    row,
    pair_id,
    CASE
        WHEN fixed IS NOT NULL THEN fixed
        WHEN place < $train_upto THEN 'train'
        WHEN place < $validation_upto THEN 'validation'
        WHEN place < $test_upto THEN 'test'
        ELSE 'ood'
    END AS split,
    prompt_id,
    concat('text', CASE WHEN lyrics IS NOT NULL THEN '+lyrics' END, CASE WHEN reference IS NOT NULL THEN '+audio' END)
        AS modality,
    text,
    lyrics,
    coalesce(voice_of(lyrics), 'instrumental') AS vocals,
    reference_sha256,
    replace(modality, 'audio', 'reference') AS conditioned_on,
    generation_a,
    generation_b,
    model_a,
    model_b,
    musicality,
    alignment,
    confidence_musicality,
    confidence_alignment,
    mq_a,
    mq_b,
    if_a,
    if_b,
    judge,
    NULL::VARCHAR[] AS musicality_votes,
    NULL::VARCHAR[] AS alignment_votes,
    audio_a,
    audio_b,
    source_file,
    line
FROM released_pairs
JOIN (
    SELECT
        row,
        ['test', 'validation', 'ood', 'train'][
            min(list_position(['test', 'validation', 'ood', 'train'], split)) OVER together
        ] AS fixed,
        md5_number_upper(concat($seed::BIGINT, ':', min(name) OVER together)) / 18446744073709551616.0 AS place
    FROM groups
    WINDOW together AS (PARTITION BY number)
) USING (row)
