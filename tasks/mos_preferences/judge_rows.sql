-- Grain: one row an imported row that is left out: its clip is contested, it contradicts the first row of its clip, or is
-- a vote or a mean that is there already.
--
-- A clip is contested where its rows disagree on a fact: which of them is right nobody can tell, so none of them counts.
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
            WHEN later.subset IS DISTINCT FROM kept.subset THEN ['subset', kept.subset, later.subset]
            WHEN later.system_id IS DISTINCT FROM kept.system_id THEN ['system', kept.system_id, later.system_id]
            WHEN later.speaker_id IS DISTINCT FROM kept.speaker_id THEN ['speaker', kept.speaker_id, later.speaker_id]
            WHEN later.content_id IS DISTINCT FROM kept.content_id THEN ['content', kept.content_id, later.content_id]
            WHEN later.condition_id IS DISTINCT FROM kept.condition_id
                THEN ['condition', kept.condition_id, later.condition_id]
        END AS fact,
        CASE
            WHEN later.split IS DISTINCT FROM kept.split THEN 'conflicting_split'
            WHEN later.listener_id IS NULL AND clips.by_listener THEN 'mean_beside_ratings'
        END AS contradiction
    FROM imported AS later
    JOIN clips USING (dataset, file)
    JOIN imported AS kept ON kept.row = clips.row
),

contested AS (
    SELECT
        dataset,
        file,
        min_by(concat(
            'expected one ', fact[1], ' a clip, found ', coalesce(fact[2], 'none'), ' in ', kept_line, ' and ',
            coalesce(fact[3], 'none'), ' in line ', line,
            '; sources.where chooses rows, and columns.file = "{...}" names a clip by several columns'
        ), row) AS disagreement
    FROM compared
    WHERE fact IS NOT NULL
    GROUP BY dataset, file
),

counted AS (
    SELECT
        *,
        row_number() OVER by_listener AS turn,
        count(*) OVER (PARTITION BY dataset, file, listener_id) AS turns,
        row_number() OVER (PARTITION BY dataset, file, score, votes, mos_std ORDER BY row) AS same_mean
    FROM compared
    JOIN sources USING (dataset)
    ANTI JOIN contested USING (dataset, file)
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
    CASE WHEN disagreement IS NULL THEN coalesce(contradiction, repetition) ELSE 'conflicting_facts' END AS reason,
    CASE reason
        WHEN 'conflicting_split' THEN concat('expected one split a clip, found ', split, '; ', kept_line, ' says ', kept_split)
        WHEN 'mean_beside_ratings'
            THEN concat('expected ratings by listener alone, found ', score, ' without a listener')
        WHEN 'conflicting_facts' THEN disagreement
        WHEN 'duplicate' THEN concat('expected each mean once, found ', score, ' again')
        ELSE concat('expected one rating a listener, found ', turns, ' by one listener; repeat_votes = "',
            repeat_votes, '" leaves this one out')
    END AS detail,
    source_file,
    line
FROM compared
LEFT JOIN judged USING (row)
LEFT JOIN contested USING (dataset, file)
WHERE coalesce(disagreement, contradiction, repetition) IS NOT NULL
