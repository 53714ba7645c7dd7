-- Grain: one row a clip that could be described (`single`) or a pair that could be compared (`paired`), with its place.
--
-- Places follow the hash of seed and id, so that asking for more keeps the earlier ones. Which clip of a pair is heard
-- first follows another hash of the pair alone, which knows neither MOS nor place.
CREATE TABLE critique_items AS
WITH heard AS (
    SELECT
        *,
        md5_number_upper(concat($seed::BIGINT, ':critique order:', pair_id)) % 2 = 0 AS chosen_first
    FROM pairs
    WHERE list_contains($splits::VARCHAR[], split) AND list_contains($datasets::VARCHAR[], dataset)
),

items AS (
    SELECT
        'single' AS kind,
        ratings.sample_id AS item,
        ratings.dataset,
        ratings.split,
        ratings.sample_id AS first_id,
        NULL::VARCHAR AS second_id,
        NULL::VARCHAR AS better,
        ratings.mos AS first_mos,
        NULL::DOUBLE AS second_mos,
        NULL::DOUBLE AS mos_gap_normalized
    FROM ratings
    WHERE sample_id IN (SELECT chosen_id FROM heard UNION SELECT rejected_id FROM heard)
    UNION ALL
    SELECT
        'paired',
        pair_id,
        dataset,
        split,
        if(chosen_first, chosen_id, rejected_id),
        if(chosen_first, rejected_id, chosen_id),
        if(chosen_first, 'first', 'second'),
        if(chosen_first, chosen_mos, rejected_mos),
        if(chosen_first, rejected_mos, chosen_mos),
        mos_gap_normalized
    FROM heard
)

SELECT
    *,
    row_number() OVER (
        PARTITION BY kind ORDER BY md5_number_upper(concat($seed::BIGINT, ':critique:', item)), item
    ) AS place
FROM items
