-- Grain: adds, for each cell, at most `count` triplets of one kind of group and level, the first by hash.
--
-- Three clips of one group, `level` places apart on its line, of which every two may be a pair of that kind (ring_of)
-- and no two have MOS nearer than `min_gap`.
INSERT INTO triplet_candidates
WITH line AS (
    SELECT
        cell,
        CASE $ring WHEN 0 THEN content WHEN 1 THEN system WHEN 2 THEN speaker ELSE stratum END AS grouping,
        position,
        {clip: clip, mos: mos, to_five: to_five, draw: draw, content: content, system: system, speaker: speaker, condition: condition}
            AS x
    FROM clips
    WHERE cell IN (SELECT cell FROM asked)
),

met AS (
    SELECT cell, x, lead(x, $level::INTEGER) OVER along AS y, lead(x, 2 * $level::INTEGER) OVER along AS z
    FROM line
    WHERE grouping IS NOT NULL
    WINDOW along AS (PARTITION BY grouping ORDER BY position, x.clip)
),

fit AS (
    SELECT
        cell,
        xor(xor(x.draw, y.draw), z.draw) AS hash,
        [end_.clip FOR end_ IN list_reverse_sort([
            {mos: x.mos, clip: x.clip}, {mos: y.mos, clip: y.clip}, {mos: z.mos, clip: z.clip}
        ])] AS falling
    FROM met
    WHERE z IS NOT NULL
        AND abs(x.mos - y.mos) * x.to_five >= $min_gap
        AND abs(y.mos - z.mos) * x.to_five >= $min_gap
        AND abs(x.mos - z.mos) * x.to_five >= $min_gap
        AND ring_of(x.content, y.content, x.system, y.system, x.speaker, y.speaker, x.condition, y.condition) = $ring
        AND ring_of(y.content, z.content, y.system, z.system, y.speaker, z.speaker, y.condition, z.condition) = $ring
        AND ring_of(x.content, z.content, x.system, z.system, x.speaker, z.speaker, x.condition, z.condition) = $ring
),

first_by_hash AS (
    SELECT cell, unnest(min_by({hash: hash, falling: falling}, hash, $count)) AS kept FROM fit GROUP BY cell
)

SELECT
    cell,
    $ring::TINYINT AS ring,
    CASE $ring WHEN 0 THEN 0 WHEN 3 THEN 2 ELSE 1 END::TINYINT AS category,
    $level::SMALLINT AS level,
    kept.hash,
    kept.falling[1] AS a,
    kept.falling[2] AS b,
    kept.falling[3] AS c
FROM first_by_hash
