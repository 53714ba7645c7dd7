-- Grain: one row a clip and the clip `level` places further on the line of one group.
--
-- The clips of a group stand on a line in the order of their hashed ids; level 1 pairs neighbours, level 2 those two
-- places apart, and so on. Each pair of a group has one level, so none is drawn twice and all levels together are all
-- pairs; a clip meets at most two others a level; a clip that comes or goes changes its neighbours' pairs only.
CREATE OR REPLACE TEMP TABLE met AS
WITH line AS (
    SELECT *, CASE $ring WHEN 0 THEN content WHEN 1 THEN system WHEN 2 THEN speaker ELSE stratum END AS grouping
    FROM clips
    WHERE cell IN (SELECT cell FROM asked)
)

SELECT
    cell,
    clip,
    mos,
    mos_se,
    to_five,
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
