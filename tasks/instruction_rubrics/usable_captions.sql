-- Grain: one row a caption whose clip can be used, in the order of the lists.
SELECT
    captions.*,
    media.* EXCLUDE (row, level_dbfs, silent_share, codec, reason, detail),
    left(
        md5(concat_ws(chr(10), captions.source, captions.domain, captions.language, trim(captions.text))), 16
    ) AS instruction_id
FROM captions
JOIN media USING (row)
ANTI JOIN refused USING (row)
ORDER BY captions.row
