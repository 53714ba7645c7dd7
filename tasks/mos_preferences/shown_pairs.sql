-- Grain: one row a pair of `$keys`, with the files and hashes of its clips.
SELECT pairs.*,
       chosen.file AS chosen_file, chosen.clip_sha256 AS chosen_sha256,
       rejected.file AS rejected_file, rejected.clip_sha256 AS rejected_sha256
FROM pairs
JOIN ratings AS chosen ON chosen.sample_id = chosen_id
JOIN ratings AS rejected ON rejected.sample_id = rejected_id
WHERE pair_id IN (SELECT unnest($keys))
