-- Grain: one row a generation that cannot be judged, with the first reason that applies.
CREATE TABLE refused_generations AS
WITH numbered AS (
    SELECT
        generations.*,
        media.* EXCLUDE (kind, item),
        home IS NULL AS homeless,
        holds,
        [part FOR part IN coalesce(string_split(conditioned_on, '+'), []) IF NOT list_contains(string_split(holds, '+'), part)]
            AS lacks,
        row_number() OVER same_id AS occurrence,
        first(line) OVER same_id AS first_line
    FROM generations
    JOIN media ON media.kind = 'generation' AND media.item = generations.row
    LEFT JOIN (SELECT prompt_id AS home, holds FROM asked_prompts) AS homes ON homes.home = generations.prompt_id
    WINDOW same_id AS (PARTITION BY generation_id ORDER BY generations.row)
),

known AS (
    SELECT
        *,
        CASE WHEN clip_sha256 IS NOT NULL THEN row_number() OVER same_audio ELSE 1 END AS heard,
        first(generation_id) OVER same_audio AS first_heard
    FROM numbered
    WINDOW same_audio AS (PARTITION BY clip_sha256 ORDER BY homeless OR occurrence > 1 OR len(lacks) > 0, row)
)

SELECT
    row,
    generation_id,
    CASE
        WHEN occurrence > 1 THEN 'duplicate_id'
        WHEN homeless THEN 'unknown_prompt'
        WHEN len(lacks) > 0 THEN 'condition_missing'
        WHEN reason IS NOT NULL THEN reason
        WHEN duration_s < $shortest_s THEN 'audio_too_short'
        WHEN peak_dbfs < $silence_dbfs THEN 'audio_silent'
        ELSE 'duplicate_audio'
    END AS reason,
    CASE
        WHEN occurrence > 1 THEN concat('expected each generation_id once, found it in line ', first_line)
        WHEN homeless THEN concat('expected a usable prompt, found ', prompt_id)
        WHEN len(lacks) > 0 THEN concat('expected ', lacks[1], ' in the prompt, found ', holds)
        WHEN reason IS NOT NULL THEN detail
        WHEN duration_s < $shortest_s THEN concat('expected at least ', $shortest_s, ' s, found ', round(duration_s, 3))
        WHEN peak_dbfs < $silence_dbfs
            THEN concat('expected a peak above ', $silence_dbfs, ' dBFS, found ', round(peak_dbfs, 1))
        ELSE concat('expected audio that no other generation has, found the bytes of ', first_heard)
    END AS detail,
    source_file,
    line,
    [
        {'kind': 'clip', 'id': clip_sha256},
        {'kind': 'prompt', 'id': prompt_id},
        {'kind': 'generation', 'id': CASE WHEN heard > 1 THEN first_heard END}
    ] AS made_from
FROM known
WHERE occurrence > 1
    OR homeless
    OR len(lacks) > 0
    OR reason IS NOT NULL
    OR duration_s < $shortest_s
    OR peak_dbfs < $silence_dbfs
    OR heard > 1
