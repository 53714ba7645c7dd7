-- Grain: one row a thing that rows name and a mark withdraws
WITH named AS (
    SELECT DISTINCT refs.kind, refs.id, looked.prefix
    FROM refs
    JOIN (SELECT DISTINCT kind, prefix FROM marks) AS looked USING (kind)
)

SELECT DISTINCT named.kind, named.id
FROM named
JOIN marks
    ON marks.kind = named.kind
    AND marks.prefix = named.prefix
    AND marks.digest = sha256(concat(named.prefix, ':', named.id))
