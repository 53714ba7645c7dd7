-- Grain: adds one row a pair that may be used: clips `level` places apart on the line of one group.
--
-- The clips of a group stand on a line in the order of their hashed ids; level 1 pairs neighbours, level 2 those two
-- places apart, and so on. Each pair of a group has one level, so none is drawn twice and all levels together are all
-- pairs; a clip meets at most two others a level; a clip that comes or goes changes its neighbours' pairs only.
INSERT INTO candidates
WITH line AS (
    SELECT *, CASE $ring WHEN 0 THEN content WHEN 1 THEN system WHEN 2 THEN speaker ELSE stratum END AS grouping
    FROM clips
    WHERE cell IN (SELECT cell FROM asked)
),

met AS (
    SELECT
        cell,
        clip,
        mos,
        mos_se,
        draw,
        content,
        system,
        speaker,
        condition,
        lead(clip, $level::INTEGER) OVER along AS other_clip,
        lead(mos, $level::INTEGER) OVER along AS other_mos,
        lead(mos_se, $level::INTEGER) OVER along AS other_mos_se,
        lead(draw, $level::INTEGER) OVER along AS other_draw,
        lead(content, $level::INTEGER) OVER along AS other_content,
        lead(system, $level::INTEGER) OVER along AS other_system,
        lead(speaker, $level::INTEGER) OVER along AS other_speaker,
        lead(condition, $level::INTEGER) OVER along AS other_condition
    FROM line
    WHERE grouping IS NOT NULL
    WINDOW along AS (PARTITION BY grouping ORDER BY position, clip)
)

SELECT
    CASE WHEN mos > other_mos THEN clip ELSE other_clip END AS chosen,
    CASE WHEN mos > other_mos THEN other_clip ELSE clip END AS rejected,
    cell,
    $ring::TINYINT AS ring,
    CASE $ring WHEN 0 THEN 0 WHEN 3 THEN 2 ELSE 1 END::TINYINT AS category,
    $level::SMALLINT AS level,
    xor(draw, other_draw) AS hash,
    abs(mos - other_mos) AS mos_gap,
    len([edge FOR edge IN $edges::DOUBLE[] IF edge <= abs(mos - other_mos)])::TINYINT AS bin
FROM met
WHERE other_clip IS NOT NULL
    AND abs(mos - other_mos) >= $min_gap
    AND ($min_chance = 0 OR order_chance(abs(mos - other_mos), mos_se, other_mos_se) >= $min_chance)
    AND ring_of(content, other_content, system, other_system, speaker, other_speaker, condition, other_condition) = $ring
