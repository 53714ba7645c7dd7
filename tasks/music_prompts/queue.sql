-- Grain: one row a triplet that may be written for, in the order of its stratum.
--
-- `unnatural` holds the words of its tags that are names run together, which no caption has. `added` holds instruments that most often go with the genre, for writers without an ear of their own.
WITH usual AS (
    SELECT
        tag_a AS genre,
        tags.tag AS instrument,
        tags.written,
        row_number() OVER (PARTITION BY tag_a ORDER BY cooccurrence.tracks DESC, tags.tag) AS place
    FROM cooccurrence
    JOIN tags ON tags.category = 'instrument' AND tags.tag = cooccurrence.tag_b
    JOIN lexicon ON lexicon.category = 'instrument' AND lexicon.tag = cooccurrence.tag_b AND NOT lexicon.everyday
    WHERE category_a = 'genre' AND category_b = 'instrument' AND cooccurrence.tracks > 0
    QUALIFY place <= 4
),

drawn AS (
    SELECT candidates.*
    FROM candidates
    JOIN wanted USING (stratum)
    WHERE candidates.rank <= wanted.most
),

adding AS (
    SELECT
        drawn.triplet_id,
        list(usual.written ORDER BY usual.place)[1 : (1 + any_value(drawn.draw) % 3)::BIGINT] AS added
    FROM drawn
    JOIN usual ON usual.genre = drawn.genre AND usual.instrument <> drawn.instrument
    WHERE drawn.stratum = 'improvised_id'
    GROUP BY drawn.triplet_id
),

unnatural AS (
    SELECT category, tag, written
    FROM tags
    SEMI JOIN (FROM lexicon WHERE run_together) AS run USING (category, tag)
    WHERE coalesce(mentions, 0) = 0
)

SELECT
    drawn.stratum,
    drawn.rank,
    drawn.triplet_id,
    drawn.genre,
    drawn.instrument,
    drawn.mood_theme,
    genres.written AS genre_written,
    instruments.written AS instrument_written,
    moods.written AS mood_written,
    drawn.genre_instrument_tracks,
    drawn.genre_mood_tracks,
    drawn.instrument_mood_tracks,
    drawn.kept,
    coalesce(adding.added, []) AS added,
    list_filter([odd_genre.written, odd_instrument.written, odd_mood.written], lambda name: name IS NOT NULL) AS unnatural
FROM drawn
JOIN tags AS genres ON genres.category = 'genre' AND genres.tag = drawn.genre
JOIN tags AS instruments ON instruments.category = 'instrument' AND instruments.tag = drawn.instrument
JOIN tags AS moods ON moods.category = 'mood/theme' AND moods.tag = drawn.mood_theme
LEFT JOIN adding USING (triplet_id)
LEFT JOIN unnatural AS odd_genre ON odd_genre.category = 'genre' AND odd_genre.tag = drawn.genre
LEFT JOIN unnatural AS odd_instrument ON odd_instrument.category = 'instrument' AND odd_instrument.tag = drawn.instrument
LEFT JOIN unnatural AS odd_mood ON odd_mood.category = 'mood/theme' AND odd_mood.tag = drawn.mood_theme
ORDER BY drawn.stratum, drawn.rank
