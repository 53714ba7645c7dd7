-- Grain: one row a reject, `$most` at most: reasons take turns, and within one the hash of the reject decides.
WITH hashed AS (
    SELECT *, md5(concat_ws(chr(10), item, detail, file, line)) AS place FROM rejects
)
SELECT item, reason, stage, "table", file, line, detail
FROM hashed
ORDER BY row_number() OVER (PARTITION BY reason ORDER BY place, item, file, line), place, item, file, line
LIMIT $most
