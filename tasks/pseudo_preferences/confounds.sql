-- Grain: one row a choice between two clips: a set, judge, dimension, pair and, of answers, order. Ties are not in it.
--
-- `answers` is what a pass prefers, before anything is filtered; `labels` what is left. Differences are those of a less
-- b; one that nobody can measure (0.1 LU, 10 ms) is 0.
WITH said AS (
    SELECT
        'answers' AS set,
        unnest(CASE WHEN len($judges::VARCHAR[]) > 1 THEN ['all', judge] ELSE ['all'] END) AS judge,
        dimension,
        pair_id,
        choice,
        CASE "order" WHEN 'forward' THEN -1 ELSE 1 END AS later
    FROM judgments
    UNION ALL
    SELECT 'labels', 'all', dimension, pair_id, choice, 0
    FROM (UNPIVOT (SELECT pair_id, musicality, alignment FROM labels) ON musicality, alignment INTO NAME dimension VALUE choice)
),

measured AS (
    SELECT
        said.*,
        pairs.prompt_id,
        a.loudness_lufs - b.loudness_lufs AS louder,
        a.duration_s - b.duration_s AS longer,
        ln(a.duration_s / b.duration_s) AS ratio,
        ln(a.sample_rate_hz / b.sample_rate_hz) AS higher_rate
    FROM said
    JOIN pairs USING (pair_id)
    JOIN clips AS a ON a.generation_id = pairs.generation_a
    JOIN clips AS b ON b.generation_id = pairs.generation_b
    WHERE choice IN ('a', 'b')
)

SELECT
    set,
    judge,
    dimension,
    pair_id,
    prompt_id,
    choice = 'a' AS a_won,
    CASE WHEN abs(louder) < 0.1 THEN 0 ELSE louder END AS louder,
    CASE WHEN abs(longer) < 0.01 THEN 0 ELSE ratio END AS longer,
    higher_rate,
    later::DOUBLE AS later
FROM measured
ORDER BY set, judge <> 'all', judge, dimension, pair_id, later
