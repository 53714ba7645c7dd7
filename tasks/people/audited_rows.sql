-- Grain: one row an audited sample: of each label and stratum one in turn, by hash of their ids.
SELECT * EXCLUDE (turn)
FROM (
    SELECT
        *,
        row_number() OVER (PARTITION BY target, stratum ORDER BY md5('audit' || $seed || id), id) AS turn
    FROM judged.strata
)
ORDER BY turn, md5('audit' || $seed || id), id
LIMIT $rows
