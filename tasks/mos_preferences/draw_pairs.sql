-- Grain: adds one row a pair that may be used, of those that `meet_pairs` put side by side.
INSERT INTO candidates
SELECT
    CASE WHEN mos > other_mos THEN clip ELSE other_clip END AS chosen,
    CASE WHEN mos > other_mos THEN other_clip ELSE clip END AS rejected,
    cell,
    $ring::TINYINT AS ring,
    CASE $ring WHEN 0 THEN 0 WHEN 3 THEN 2 ELSE 1 END::TINYINT AS category,
    $level::SMALLINT AS level,
    xor(draw, other_draw) AS hash,
    abs(mos - other_mos) AS mos_gap,
    len([edge FOR edge IN $edges::DOUBLE[] IF edge <= round(abs(mos - other_mos) * to_five, 9)])::TINYINT AS bin
FROM met
WHERE other_clip IS NOT NULL
    AND abs(mos - other_mos) * to_five >= $min_gap
    AND ring_of(content, other_content, system, other_system, speaker, other_speaker, condition, other_condition) = $ring
