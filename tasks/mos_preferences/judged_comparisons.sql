-- Grain: one row a pair that was compared: does the comparison say what is heard? A critique claims that it does.
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
    CASE
        WHEN abs(first_mos - second_mos) < 0.2 THEN '< 0.2' WHEN abs(first_mos - second_mos) <= 0.5 THEN '0.2 to 0.5' ELSE '> 0.5'
    END AS gap
FROM paired_critiques
