-- Grain: one row an answer and dimension that it was asked for, in the pair's own letters: in the reverse pass, A of the
-- prompt is the pair's b.
CREATE VIEW answered AS
SELECT
    pair_id,
    "order",
    dimension,
    json_extract_string(value, concat('$.', dimension)) AS position,
    CASE
        WHEN position = 'tie' THEN 'tie'
        WHEN ("order" = 'forward') = (position = 'A') THEN 'a'
        ELSE 'b'
    END AS choice,
    json_extract(value, concat('$.confidence_', dimension))::DOUBLE AS confidence,
    CASE dimension WHEN 'musicality' THEN 'quality' ELSE 'following' END AS scored,
    json_extract(value, concat('$.', scored, CASE "order" WHEN 'forward' THEN '_a' ELSE '_b' END))::DOUBLE AS score_a,
    json_extract(value, concat('$.', scored, CASE "order" WHEN 'forward' THEN '_b' ELSE '_a' END))::DOUBLE AS score_b,
    json_extract_string(value, '$.reason') AS reason,
    judge,
    prompt,
    request_key,
    notes
FROM (SELECT *, unnest(string_split(dimensions, '+')) AS dimension FROM draws WHERE reason IS NULL)
