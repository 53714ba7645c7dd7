-- Grain: one row a prompt that cannot be used, with the first reason that applies.
CREATE TABLE refused_prompts AS
WITH known AS (
    SELECT prompts.*, media.reason, media.detail, row_number() OVER same AS occurrence, first(line) OVER same AS first_line
    FROM prompts
    LEFT JOIN media ON media.kind = 'reference' AND media.item = prompts.row
    WINDOW same AS (PARTITION BY prompt_id ORDER BY row)
)

SELECT
    row,
    prompt_id,
    CASE WHEN occurrence > 1 THEN 'duplicate_id' ELSE reason END AS reason,
    CASE
        WHEN occurrence > 1 THEN concat('expected each prompt_id once, found it in line ', first_line)
        ELSE concat('reference audio: ', detail)
    END AS detail,
    source_file,
    line
FROM known
WHERE occurrence > 1 OR reason IS NOT NULL
