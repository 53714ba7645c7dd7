-- Grain: one row a pair whose comparison is valid: hear both clips in the order of the critic, write its words and scores.
SELECT
    pair_id AS id,
    split,
    [$ask || E'\nClip 1: ', E'\nClip 2: ', ''] AS prompt,
    [first_sha256, second_sha256] AS audios,
    rationale AS completion,
    better,
    mos_gap_normalized,
    dataset,
    model,
    {'prompt': 'speech-critique-pair', 'clips': ['first', 'second']} AS wording
FROM paired_critiques
