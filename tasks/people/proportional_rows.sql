-- Grain: one row an audited sample: of each stratum, and label in it, in proportion; within them by hash of their ids.
SELECT * EXCLUDE (place, of_all)
FROM (
    SELECT
        *,
        row_number() OVER (ORDER BY stratum, target, md5('audit' || $seed || id), id) AS place,
        count(*) OVER () AS of_all
    FROM judged.strata
)
-- every step of one drawn row's share that the order passes draws one
WHERE place * $rows // of_all > (place - 1) * $rows // of_all
ORDER BY md5('audit' || $seed || id), id
