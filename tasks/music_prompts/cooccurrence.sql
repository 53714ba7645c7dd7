-- Grain: one row two tags of the pool of different categories; the published table `cooccurrence`, zeros and all.
CREATE TABLE cooccurrence AS
WITH pool AS (
    SELECT category, tag
    FROM tags
    WHERE in_pool
),

carried AS (
    SELECT track, category, tag
    FROM track_tags
    SEMI JOIN pool USING (category, tag)
),

together AS (
    SELECT a.category AS category_a, a.tag AS tag_a, b.category AS category_b, b.tag AS tag_b, count(*) AS tracks
    FROM carried AS a
    JOIN carried AS b ON a.track = b.track AND a.category < b.category
    GROUP BY ALL
)

SELECT
    a.category AS category_a,
    a.tag AS tag_a,
    b.category AS category_b,
    b.tag AS tag_b,
    coalesce(together.tracks, 0) AS tracks
FROM pool AS a
JOIN pool AS b ON a.category < b.category
LEFT JOIN together
    ON
        together.category_a = a.category
        AND together.tag_a = a.tag
        AND together.category_b = b.category
        AND together.tag_b = b.tag
