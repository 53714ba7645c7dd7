-- Grain: one row a judged pair and dimension that people compared too: the same two clips, by hash, in the pair's letters.
SELECT
    passes.dimension,
    pairs.prompt_id,
    forward_choice,
    reverse_choice,
    agreed,
    judge,
    passes.pair_id,
    combined.choice AS jury,
    CASE
        WHEN votes.preference = 'tie' OR votes.sha_a = a.clip_sha256 THEN votes.preference
        WHEN votes.preference = 'a' THEN 'b'
        ELSE 'a'
    END AS people,
    CASE WHEN votes.confidence < 3 THEN '<3' WHEN votes.confidence > 3 THEN '>3' WHEN votes.confidence = 3 THEN '3' END
        AS band
FROM passes
JOIN pairs USING (pair_id)
LEFT JOIN combined ON combined.item = passes.pair_id AND combined.dimension = passes.dimension
JOIN clips AS a ON a.generation_id = pairs.generation_a
JOIN clips AS b ON b.generation_id = pairs.generation_b
JOIN (
    SELECT dimension, preference, confidence, voted_a.clip_sha256 AS sha_a, voted_b.clip_sha256 AS sha_b
    FROM people_preferences
    JOIN people_comparisons USING (comparison_id)
    JOIN people_clips AS voted_a ON voted_a.clip_id = clip_a
    JOIN people_clips AS voted_b ON voted_b.clip_id = clip_b
) AS votes
    ON votes.dimension = passes.dimension
    AND least(sha_a, sha_b) = least(a.clip_sha256, b.clip_sha256)
    AND greatest(sha_a, sha_b) = greatest(a.clip_sha256, b.clip_sha256)
ORDER BY passes.dimension, passes.pair_id, judge, people, band
