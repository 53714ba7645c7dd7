-- Grain: one row a pair that was compared: does the comparison say what is heard? A critique claims that it does. `gap`
-- is of a 1-to-5 scale.
SELECT
    pair_id AS id,
    split,
    true AS target,
    first_sha256 AS a_audio,
    second_sha256 AS b_audio,
    rationale AS critique,
    dataset,
    model,
    tries,
    round(abs(first_mos - second_mos) * 4 / (scale_max - scale_min), 6) AS gap_of_five,
    CASE WHEN gap_of_five < 0.2 THEN '< 0.2' WHEN gap_of_five <= 0.5 THEN '0.2 to 0.5' ELSE '> 0.5' END AS gap
FROM paired_critiques
JOIN (SELECT sample_id, scale_min, scale_max FROM ratings) ON sample_id = first_id
