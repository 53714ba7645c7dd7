-- Grain: one row a text, with its lyrics, that stands in several splits of `pairs`; at most one.
SELECT any_value(text) AS text
FROM pairs
GROUP BY plain_words(text), plain_words(lyrics)
HAVING count(DISTINCT split) > 1
LIMIT 1
