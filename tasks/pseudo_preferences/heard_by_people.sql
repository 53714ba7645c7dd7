-- Grain: one row a judged pair and dimension that people compared too: the same two clips, by hash, in the pair's letters.
--
-- One recording may stand under several names in the votes: the weights of its comparisons are added up.
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
    SELECT
        dimension,
        sha_a,
        sha_b,
        CASE
            WHEN count(*) = 1 THEN any_value(said)
            WHEN sum(for_a) > greatest(sum(for_b), sum(weight_tie)) THEN 'a'
            WHEN sum(for_b) > greatest(sum(for_a), sum(weight_tie)) THEN 'b'
            ELSE 'tie'
        END AS preference,
        CASE
            WHEN count(*) = 1 THEN any_value(confidence)
            ELSE sum(confidence * votes) / sum(votes) FILTER (confidence IS NOT NULL)
        END AS confidence
    FROM (
        SELECT
            *,
            least(sha_1, sha_2) AS sha_a,
            greatest(sha_1, sha_2) AS sha_b,
            CASE WHEN sha_1 = sha_a THEN weight_a ELSE weight_b END AS for_a,
            CASE WHEN sha_1 = sha_a THEN weight_b ELSE weight_a END AS for_b,
            CASE WHEN preference = 'tie' OR sha_1 = sha_a THEN preference WHEN preference = 'a' THEN 'b' ELSE 'a' END
                AS said
        FROM (
            SELECT people_preferences.*, voted_a.clip_sha256 AS sha_1, voted_b.clip_sha256 AS sha_2
            FROM people_preferences
            JOIN people_comparisons USING (comparison_id)
            JOIN people_clips AS voted_a ON voted_a.clip_id = clip_a
            JOIN people_clips AS voted_b ON voted_b.clip_id = clip_b
        )
    )
    GROUP BY dimension, sha_a, sha_b
) AS votes
    ON votes.dimension = passes.dimension
    AND sha_a = least(a.clip_sha256, b.clip_sha256)
    AND sha_b = greatest(a.clip_sha256, b.clip_sha256)
ORDER BY passes.dimension, passes.pair_id, judge, people, band
