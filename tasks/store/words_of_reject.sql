-- Grain: a list a reject of an earlier release, which does not tell what it is about: every word of its item and detail
-- as the id of a thing of every kind, whole and in its parts; its source is what its file's name begins with.
CREATE MACRO words_of_reject(item, detail, file, kinds) AS
    [{'kind': 'source', 'id': split_part(file, '/', 1)}]
    || flatten([
        [
            {'kind': kind, 'id': word}
            FOR word IN list_distinct(
                [item]
                || [rtrim(word, '.:') FOR word IN regexp_split_to_array(concat(item, ' ', detail), '[\s,;''"()\[\]]+')]
                || regexp_split_to_array(concat(item, ' ', detail), '[\s,;''"()\[\]/.:#]+')
            )
        ]
        FOR kind IN kinds
    ])
