-- Grain: one row a pair of `$keys`, with its clips' hashes, its label, and the answers of both passes as a list.
SELECT pairs.*,
       a.clip_sha256 AS sha256_a, b.clip_sha256 AS sha256_b,
       labels.musicality, labels.alignment, said.answers
FROM pairs
JOIN clips AS a ON a.generation_id = pairs.generation_a
JOIN clips AS b ON b.generation_id = pairs.generation_b
LEFT JOIN labels ON labels.pair_id = pairs.pair_id
LEFT JOIN (
    SELECT pair_id,
           list({'judge': judge, 'order': "order", 'dimension': dimension, 'choice': choice, 'reason': reason}
                ORDER BY judge, dimension, "order") AS answers
    FROM judgments WHERE pair_id IN (SELECT unnest($keys)) GROUP BY pair_id
) AS said ON said.pair_id = pairs.pair_id
WHERE pairs.pair_id IN (SELECT unnest($keys))
