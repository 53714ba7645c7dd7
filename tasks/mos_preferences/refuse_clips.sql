-- Grain: one row a clip that cannot be used, with the first reason that applies.
CREATE TABLE refused AS
WITH heard AS (
    SELECT
        placed.*,
        media.reason,
        media.detail,
        media.clip_sha256,
        first(concat(placed.dataset, '/', placed.file)) OVER same AS first_heard,
        media.clip_sha256 IS NOT NULL AND row_number() OVER same > 1 AS heard_before
    FROM placed
    LEFT JOIN media USING (row)
    WINDOW same AS (PARTITION BY media.clip_sha256 ORDER BY placed.split IS NULL, placed.row)
)

SELECT
    row,
    file,
    CASE WHEN split IS NULL THEN 'bad_split' ELSE coalesce(reason, 'duplicate_audio') END AS reason,
    CASE
        WHEN split IS NULL THEN 'expected a split, as other rows of this source have one'
        ELSE coalesce(detail, concat('expected audio that no other clip has, found the bytes of ', first_heard))
    END AS detail,
    source_file,
    line,
    [
        {'kind': 'clip', 'id': clip_sha256},
        {'kind': 'rated_clip', 'id': CASE WHEN heard_before THEN first_heard END}
    ] AS made_from
FROM heard
WHERE split IS NULL OR reason IS NOT NULL OR heard_before
