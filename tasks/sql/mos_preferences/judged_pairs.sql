-- Grain: one row a pair of clips; which stands as a follows from a hash of the pair. Clips are null without audio.
SELECT
    pairs.pair_id AS id,
    pairs.split,
    CASE WHEN chosen_first THEN 'a' ELSE 'b' END AS target,
    CASE WHEN chosen_first THEN chosen.clip_sha256 ELSE rejected.clip_sha256 END AS a_audio,
    CASE WHEN chosen_first THEN rejected.clip_sha256 ELSE chosen.clip_sha256 END AS b_audio,
    pairs.dataset,
    pairs.category,
    pairs.gap_decile
FROM (SELECT *, substr(md5(pair_id || ' first'), 1, 1) < '8' AS chosen_first FROM pairs) AS pairs
JOIN ratings AS chosen ON chosen.sample_id = pairs.chosen_id
JOIN ratings AS rejected ON rejected.sample_id = pairs.rejected_id
