-- Grain: one row a rated clip, its ids as integers, so that millions of pairs fit in memory.
--
-- A content, system or speaker is named by the first clip that has it, within one stratum (a listening test's split).
-- `position` orders the clips on their group's line and `draw` orders pairs; both come from the seeded hash of the
-- sample id alone, so a clip that comes or goes leaves all others where they were. A gap of the list's own points times
-- `to_five` is one of a scale from 1 to 5, on which the config's thresholds stand.
CREATE TABLE clips AS
WITH rated AS (
    SELECT
        (files.first_clip + file_row_number)::INTEGER AS clip,
        cells.cell,
        cells.stratum,
        mos,
        mos_se,
        content_id,
        system_id,
        speaker_id,
        condition_id,
        4 / (scale_max - scale_min) AS to_five,
        md5_number(concat($seed::BIGINT, ':', sample_id)) AS hash
    FROM read_parquet($files, hive_partitioning = false, filename = true, file_row_number = true) AS ratings
    JOIN rating_files AS files USING (filename)
    JOIN cells
        ON ratings.dataset = cells.dataset
        AND ratings.split = cells.split
        AND ratings.subset IS NOT DISTINCT FROM cells.subset
),

contents AS (SELECT stratum, content_id, min(clip) AS content FROM rated WHERE content_id IS NOT NULL GROUP BY ALL),

systems AS (SELECT stratum, system_id, min(clip) AS system FROM rated WHERE system_id IS NOT NULL GROUP BY ALL),

speakers AS (SELECT stratum, speaker_id, min(clip) AS speaker FROM rated WHERE speaker_id IS NOT NULL GROUP BY ALL),

conditions AS (
    SELECT stratum, condition_id, min(clip) AS condition FROM rated WHERE condition_id IS NOT NULL GROUP BY ALL
)

SELECT
    clip,
    cell,
    stratum,
    content,
    system,
    speaker,
    condition,
    mos,
    mos_se,
    to_five,
    (hash >> 64)::UBIGINT AS position,
    (hash & 18446744073709551615)::UBIGINT AS draw
FROM rated
LEFT JOIN contents USING (stratum, content_id)
LEFT JOIN systems USING (stratum, system_id)
LEFT JOIN speakers USING (stratum, speaker_id)
LEFT JOIN conditions USING (stratum, condition_id)
