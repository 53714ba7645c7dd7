-- Grain: one row a scanned line of submissions that is not passed by; `place` of its file, `line` among those not blank
SELECT
    getvariable('place') AS place,
    rowid + 1 AS line,
    * EXCLUDE (passed)
        REPLACE (
            CASE WHEN image_from = 'folder' AND id NOT IN (SELECT id FROM pictured) THEN 'no_image' ELSE fate END AS fate
        )
FROM scanned
WHERE passed IS NULL
