-- Grain: one row a triplet to be written for now, with its examples: of each stratum, the first that were not tried yet,
-- as many as prompts are missing.
WITH missing AS (
    SELECT strata.stratum, any_value(strata.wanted) - count(answered.triplet_id) AS count
    FROM strata
    LEFT JOIN queue USING (stratum)
    LEFT JOIN answered USING (triplet_id)
    GROUP BY strata.stratum
),

open AS (
    SELECT queue.*
    FROM queue
    ANTI JOIN answered USING (triplet_id)
    ANTI JOIN failed USING (triplet_id)
),

chosen AS (
    SELECT open.*
    FROM open
    JOIN missing USING (stratum)
    QUALIFY row_number() OVER (PARTITION BY stratum ORDER BY rank) <= missing.count
),

examples AS (
    SELECT triplet_id, list(captions.text ORDER BY place) AS shots
    FROM shots
    JOIN captions USING (pipeline, item)
    SEMI JOIN chosen USING (triplet_id)
    GROUP BY triplet_id
)

SELECT chosen.*, coalesce(examples.shots, []) AS shots, $lexicon AS lexicon
FROM chosen
LEFT JOIN examples USING (triplet_id)
ORDER BY stratum, rank
