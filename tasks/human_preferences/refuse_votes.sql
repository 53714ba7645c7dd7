-- Grain: one row a vote that is left out, with the first reason that applies.
--
-- A clip may be the pick of several best-of-N systems: votes on the same clips under other names are others.
CREATE TABLE refused_votes AS
WITH judged AS (
    SELECT
        *,
        list_contains($drops_ties::VARCHAR[], source) AS drops_ties,
        list_contains($drops_bad::VARCHAR[], source) AS drops_bad,
        own_id IS NOT NULL AND row_number() OVER (PARTITION BY source, own_id ORDER BY row) > 1 AS twice,
        sha_a = sha_b AS same_sound
    FROM known
),

faulty AS (
    SELECT
        *,
        CASE
            WHEN twice THEN 'duplicate_id'
            WHEN fault IS NOT NULL THEN 'generation_failed'
            WHEN drops_bad AND overall = 'both_bad' THEN 'both_bad'
            WHEN drops_ties AND overall = 'tie' THEN 'tie'
            WHEN audio_reason IS NOT NULL THEN audio_reason
            WHEN same_sound THEN 'same_clip'
        END AS reason,
        CASE
            WHEN twice THEN concat('expected each vote once, found ', own_id, ' again')
            WHEN fault IS NOT NULL THEN concat('expected two clips, found: ', fault)
            WHEN (drops_bad AND overall = 'both_bad') OR (drops_ties AND overall = 'tie')
                THEN concat('expected a vote for one of the clips, found ', upper(overall))
            WHEN audio_reason IS NOT NULL THEN audio_detail
            WHEN same_sound THEN 'expected two clips, found the same bytes twice'
        END AS detail
    FROM judged
),

again AS (
    SELECT
        row,
        row_number() OVER (
            PARTITION BY
                source, annotator, prompt_key, least(clip_a, clip_b), greatest(clip_a, clip_b),
                CASE WHEN clip_a < clip_b THEN [model_a, model_b] ELSE [model_b, model_a] END
            ORDER BY row
        ) AS turn
    FROM faulty
    WHERE reason IS NULL AND annotator IS NOT NULL
)

SELECT
    row,
    vote_id,
    coalesce(reason, 'repeated_vote') AS reason,
    coalesce(detail, 'expected one vote of an annotator on two clips, found an earlier one') AS detail,
    source_file,
    line,
    [{'kind': 'annotator', 'id': annotator}] AS made_from
FROM faulty
LEFT JOIN again USING (row)
WHERE reason IS NOT NULL OR turn > 1
