-- Grain: one row a row of a rated set, with a name for its prompt and the reason why it is left out, if it is.
--
-- Rows of one clip are its ratings: each that counts carries the clip's means, numbers and deviations, and the first is
-- `is_first`. MusicEval publishes means: one that is there twice counts once. Means run over sorted lists, since they
-- shall not depend on the order of rows.
CREATE TABLE rated AS
WITH named AS (
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
            WHEN media.reason IS NOT NULL THEN media.reason
            WHEN [text, system, prompt_id, split] IS DISTINCT FROM first([text, system, prompt_id, split]) OVER same_file
                THEN 'conflicting_facts'
            WHEN sources.task = 'musiceval' AND row_number() OVER same_mean > 1 THEN 'duplicate_id'
        END AS left_out,
        CASE left_out
            WHEN 'conflicting_facts' THEN concat('expected the same text, system, prompt and split as in ',
                first(source_file) OVER same_file, ' line ', first(line) OVER same_file)
            WHEN 'duplicate_id' THEN concat('expected each mean once, found it in ', first(source_file) OVER same_mean)
            ELSE media.detail
        END AS detail
    FROM ratings
    JOIN sources ON sources.source = ratings.source
    LEFT JOIN media ON media.source = ratings.source AND media.file = ratings.file
    WINDOW same_file AS (PARTITION BY ratings.source, ratings.file ORDER BY row),
        same_mean AS (PARTITION BY ratings.source, ratings.file, musicality, alignment ORDER BY row)
),

listed AS (
    SELECT
        * EXCLUDE (musicality, alignment, left_out),
        left_out AS reason,
        list_sort(list(musicality) FILTER (musicality IS NOT NULL) OVER clip) AS all_musicality,
        list_sort(list(alignment) FILTER (alignment IS NOT NULL) OVER clip) AS all_alignment,
        row = min(row) OVER clip AS is_first
    FROM named
    WINDOW clip AS (PARTITION BY source, file, left_out IS NULL)
)

SELECT
    * EXCLUDE (all_musicality, all_alignment),
    list_sum(all_musicality) / len(all_musicality) AS musicality,
    list_sum(all_alignment) / len(all_alignment) AS alignment,
    CASE WHEN len(all_musicality) > 1 THEN len(all_musicality) END AS votes_musicality,
    CASE WHEN len(all_alignment) > 1 THEN len(all_alignment) END AS votes_alignment,
    CASE WHEN len(all_musicality) > 1 THEN sqrt(
        list_sum([(each - musicality) ** 2 FOR each IN all_musicality]) / (len(all_musicality) - 1)
    ) END AS std_musicality,
    CASE WHEN len(all_alignment) > 1 THEN sqrt(
        list_sum([(each - alignment) ** 2 FOR each IN all_alignment]) / (len(all_alignment) - 1)
    ) END AS std_alignment
FROM listed
