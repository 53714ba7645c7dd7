-- Grain: one row a triplet that has a prompt; the published table `triplets`.
SELECT
    triplet_id,
    $split AS split,
    stratum,
    genre,
    instrument,
    mood_theme,
    genre_instrument_tracks,
    genre_mood_tracks,
    instrument_mood_tracks,
    list_filter(
        [
            CASE WHEN genre_instrument_tracks = 0 THEN 'genre+instrument' END,
            CASE WHEN genre_mood_tracks = 0 THEN 'genre+mood_theme' END,
            CASE WHEN instrument_mood_tracks = 0 THEN 'instrument+mood_theme' END
        ],
        lambda pair: pair IS NOT NULL
    ) AS absent_pairs,
    CASE WHEN kept THEN $keep END AS kept_from
FROM queue
SEMI JOIN answered USING (triplet_id)
WHERE (stratum = 'strict_ood') = ($split = 'ood')
ORDER BY stratum DESC, rank
