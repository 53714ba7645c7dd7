-- Grain: one row a comparison of $keys, with its clips, what its votes say, and what annotators wrote.
SELECT
    comparisons.*,
    a.clip_sha256 AS sha256_a,
    b.clip_sha256 AS sha256_b,
    (
        SELECT list((dimension, preference, p.votes, confidence) ORDER BY dimension DESC)
        FROM preferences AS p
        WHERE p.comparison_id = comparisons.comparison_id
    ) AS said,
    (
        SELECT list(feedback ORDER BY vote_id) FILTER (feedback IS NOT NULL)
        FROM votes AS v
        WHERE v.comparison_id = comparisons.comparison_id
    ) AS feedback
FROM comparisons
JOIN clips AS a ON a.clip_id = clip_a
JOIN clips AS b ON b.clip_id = clip_b
WHERE comparisons.comparison_id IN (SELECT unnest($keys))
