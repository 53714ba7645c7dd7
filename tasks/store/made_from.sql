-- Grain: one row a reject; to what it says it is made from come its source, as its file's name begins, and its item, as
-- its table's key names things. Null stays null: an earlier release wrote it.
SELECT rejects.* REPLACE (
    CASE WHEN made_from IS NOT NULL THEN list_sort(list_distinct([
        thing FOR thing IN
            made_from
            || [{'kind': 'source', 'id': split_part(file, '/', 1)}]
            || [{'kind': kind, 'id': item} FOR kind IN coalesce(keys.kinds, [])]
        IF thing.id <> ''
    ])) END AS made_from
)
FROM rejects
LEFT JOIN keys USING ("table")
ORDER BY rejects.place
