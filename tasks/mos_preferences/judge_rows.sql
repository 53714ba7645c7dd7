-- Grain: one row an imported row that is left out: it contradicts the first row of its clip, or is a vote or a mean that
-- is there already.
--
-- Rows of one clip that agree in its facts are its ratings, by a listener or by nobody named: `merge_votes` averages them.
CREATE TABLE repeated AS
WITH clips AS (
    SELECT dataset, file, min(row) AS row, count(listener_id) > 0 AS by_listener
    FROM imported
    GROUP BY dataset, file
    HAVING count(*) > 1
),

compared AS (
    SELECT
        later.*,
        concat(kept.source_file, ' line ', kept.line) AS kept_line,
        kept.split AS kept_split,
        CASE
            WHEN later.split IS DISTINCT FROM kept.split THEN 'split_conflict'
            WHEN later.listener_id IS NULL AND clips.by_listener THEN 'mean_beside_ratings'
            WHEN later.subset IS DISTINCT FROM kept.subset
                OR later.system_id IS DISTINCT FROM kept.system_id
                OR later.speaker_id IS DISTINCT FROM kept.speaker_id
                OR later.content_id IS DISTINCT FROM kept.content_id
                OR later.condition_id IS DISTINCT FROM kept.condition_id
                THEN 'conflicting_facts'
        END AS contradiction
    FROM imported AS later
    JOIN clips USING (dataset, file)
    JOIN imported AS kept ON kept.row = clips.row
),

counted AS (
    SELECT
        *,
        row_number() OVER by_listener AS turn,
        count(*) OVER (PARTITION BY dataset, file, listener_id) AS turns,
        row_number() OVER (PARTITION BY dataset, file, score, votes, mos_std ORDER BY row) AS same_mean
    FROM compared
    JOIN sources USING (dataset)
    WHERE contradiction IS NULL
    WINDOW by_listener AS (PARTITION BY dataset, file, listener_id ORDER BY row)
),

judged AS (
    SELECT
        row,
        CASE
            WHEN listener_id IS NULL AND (means OR votes IS NOT NULL OR mos_std IS NOT NULL)
                THEN CASE WHEN same_mean > 1 THEN 'duplicate' END
            WHEN listener_id IS NOT NULL AND turns > 1 AND CASE repeat_votes
                WHEN 'first' THEN turn > 1
                WHEN 'last' THEN turn < turns
                WHEN 'reject' THEN true
                ELSE false
            END THEN 'repeated_vote'
        END AS repetition,
        turns,
        repeat_votes
    FROM counted
)

SELECT
    row,
    dataset,
    file,
    coalesce(contradiction, repetition) AS reason,
    CASE coalesce(contradiction, repetition)
        WHEN 'split_conflict' THEN concat('expected one split a clip, found ', split, '; ', kept_line, ' says ', kept_split)
        WHEN 'mean_beside_ratings'
            THEN concat('expected ratings by listener alone, found ', score, ' without a listener')
        WHEN 'conflicting_facts'
            THEN concat('expected the same system, speaker, content and condition as in ', kept_line)
        WHEN 'duplicate' THEN concat('expected each mean once, found ', score, ' again')
        ELSE concat('expected one rating a listener, found ', turns, ' by one listener; repeat_votes = "',
            repeat_votes, '" leaves this one out')
    END AS detail,
    source_file,
    line
FROM compared
LEFT JOIN judged USING (row)
WHERE coalesce(contradiction, repetition) IS NOT NULL
