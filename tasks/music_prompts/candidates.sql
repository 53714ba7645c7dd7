-- Grain: one row a genre, an instrument and a mood or theme of the pool, with its stratum and its turn in it.
--
-- In distribution, a hash decides between strict and improvised, so that a triplet's style does not hang on others.
-- Genres take turns: the first of each genre, then the second of each. They stand on a ring by hash, and each stratum
-- begins at a place of its own, so that small sets use different genres. A triplet that comes or goes moves only others
-- of its genre, and what was kept from an earlier version comes first.
CREATE TABLE candidates AS
WITH met AS (
    SELECT
        left(md5(concat_ws(chr(10), gi.tag_a, gi.tag_b, gm.tag_b)), 16) AS triplet_id,
        gi.tag_a AS genre,
        gi.tag_b AS instrument,
        gm.tag_b AS mood_theme,
        gi.tracks AS genre_instrument_tracks,
        gm.tracks AS genre_mood_tracks,
        im.tracks AS instrument_mood_tracks
    FROM cooccurrence AS gi
    JOIN cooccurrence AS gm
        ON gm.tag_a = gi.tag_a AND gm.category_a = 'genre' AND gm.category_b = 'mood/theme'
    JOIN cooccurrence AS im
        ON im.tag_a = gi.tag_b AND im.tag_b = gm.tag_b AND im.category_a = 'instrument' AND im.category_b = 'mood/theme'
    WHERE gi.category_a = 'genre' AND gi.category_b = 'instrument'
),

placed AS (
    SELECT
        *,
        CASE
            WHEN least(genre_instrument_tracks, genre_mood_tracks, instrument_mood_tracks) = 0 THEN 'strict_ood'
            WHEN md5_number_lower(concat($seed::BIGINT, ':style:', triplet_id)) / 18446744073709551616 < $strict_share
                THEN 'strict_id'
            ELSE 'improvised_id'
        END AS own_stratum,
        md5_number_lower(concat($seed::BIGINT, ':', triplet_id)) AS draw
    FROM met
),

known AS (
    SELECT
        placed.* EXCLUDE (own_stratum),
        coalesce(kept.stratum, own_stratum) AS stratum,
        kept.stratum IS NOT NULL AS kept
    FROM placed
    LEFT JOIN kept
        ON kept.triplet_id = placed.triplet_id AND (kept.stratum = 'strict_ood') = (own_stratum = 'strict_ood')
),

in_turn AS (
    SELECT *, row_number() OVER (PARTITION BY stratum, genre ORDER BY kept DESC, draw, triplet_id) AS turn
    FROM known
)

SELECT
    in_turn.*,
    row_number() OVER (
        PARTITION BY stratum
        ORDER BY
            kept DESC,
            turn,
            (md5_number_lower(concat($seed::BIGINT, ':genre:', genre)) / 18446744073709551616 + 1 - wanted.start) % 1,
            genre
    ) AS rank
FROM in_turn
JOIN wanted USING (stratum)
