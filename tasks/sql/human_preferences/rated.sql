-- Grain: one row a rated clip, with a name for its prompt and the reason why it is left out, if it is.
CREATE TABLE rated AS
SELECT
    ratings.*,
    concat(ratings.source, '/', ratings.file) AS clip_id,
    media.clip_sha256,
    CASE
        WHEN text IS NOT NULL THEN left(sha256(concat_ws(chr(31),
            'says', plain_words(text), '', '')), 16)
        WHEN prompt_id IS NOT NULL THEN left(sha256(concat_ws(chr(31), 'id', ratings.source, prompt_id)), 16)
    END AS prompt_key,
    CASE
        WHEN row_number() OVER same_file > 1 THEN 'duplicate_id'
        ELSE media.reason
    END AS reason,
    CASE
        WHEN row_number() OVER same_file > 1
            THEN concat('expected each clip once, found it in ', first(source_file) OVER same_file)
        ELSE media.detail
    END AS detail
FROM ratings
LEFT JOIN media ON media.source = ratings.source AND media.file = ratings.file
WINDOW same_file AS (PARTITION BY ratings.source, ratings.file ORDER BY row)
