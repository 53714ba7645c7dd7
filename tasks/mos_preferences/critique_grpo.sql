-- Grain: one row a pair whose clips were read: the prompt of a comparison, and what the rewards need. Which clip comes
-- first follows a hash of the pair alone, so that the order tells nothing.
SELECT
    pair_id AS id,
    pairs.split,
    [$ask || E'\nClip 1: ', E'\nClip 2: ', ''] AS prompt,
    if(chosen_first, [chosen.clip_sha256, rejected.clip_sha256], [rejected.clip_sha256, chosen.clip_sha256]) AS audios,
    if(chosen_first, 'first', 'second') AS better,
    pairs.mos_gap_normalized,
    pairs.dataset,
    {'prompt': 'speech-critique-pair', 'clips': ['first', 'second']} AS wording
FROM (SELECT *, md5_number_upper('order:' || pair_id) % 2 = 0 AS chosen_first FROM pairs) AS pairs
JOIN ratings AS chosen ON chosen.sample_id = pairs.chosen_id
JOIN ratings AS rejected ON rejected.sample_id = pairs.rejected_id
WHERE chosen.clip_sha256 IS NOT NULL AND rejected.clip_sha256 IS NOT NULL
