-- Grain: one row an imported row that contradicts or repeats the first row of the same clip.
--
-- A listener's first rating that agrees in its facts with the clip's first row is a vote, not a repetition.
CREATE TABLE repeated AS
SELECT
    later.row,
    later.dataset,
    later.file,
    CASE
        WHEN later.split IS DISTINCT FROM kept.split THEN 'split_conflict'
        WHEN (later.listener_id IS NULL) <> (kept.listener_id IS NULL) OR later.listener_id IS NULL
            THEN CASE WHEN later.score = kept.score THEN 'duplicate' ELSE 'conflicting_score' END
        WHEN later.same_listener > 1
            THEN CASE WHEN later.score = later.first_score THEN 'duplicate' ELSE 'conflicting_score' END
        ELSE 'conflicting_facts'
    END AS reason,
    CASE
        WHEN later.split IS DISTINCT FROM kept.split
            THEN concat('expected one split a clip, found ', later.split, '; ', kept.source_file, ' line ', kept.line,
                ' says ', kept.split)
        WHEN (later.listener_id IS NULL) <> (kept.listener_id IS NULL) OR later.listener_id IS NULL
            THEN concat('expected one score a clip, found ', later.score, '; ', kept.source_file, ' line ', kept.line,
                ' says ', kept.score)
        WHEN later.same_listener > 1
            THEN concat('expected one rating a listener, found ', later.score, ' by ', later.listener_id, ', who rated ',
                later.first_score, ' before')
        ELSE concat('expected the same system, speaker, content and condition as in ', kept.source_file, ' line ',
            kept.line)
    END AS detail,
    later.source_file,
    later.line
FROM (
    SELECT
        *,
        row_number() OVER by_listener AS same_listener,
        first(score) OVER by_listener AS first_score
    FROM imported
    WINDOW by_listener AS (PARTITION BY dataset, file, listener_id ORDER BY row)
) AS later
JOIN (SELECT dataset, file, min(row) AS row FROM imported GROUP BY dataset, file HAVING count(*) > 1) AS first_rows
    ON later.dataset = first_rows.dataset AND later.file = first_rows.file AND later.row > first_rows.row
JOIN imported AS kept ON kept.row = first_rows.row
WHERE later.listener_id IS NULL
    OR kept.listener_id IS NULL
    OR later.same_listener > 1
    OR later.split IS DISTINCT FROM kept.split
    OR later.subset IS DISTINCT FROM kept.subset
    OR later.system_id IS DISTINCT FROM kept.system_id
    OR later.speaker_id IS DISTINCT FROM kept.speaker_id
    OR later.content_id IS DISTINCT FROM kept.content_id
    OR later.condition_id IS DISTINCT FROM kept.condition_id
