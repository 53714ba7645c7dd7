-- Grain: one row an item and dimension that judges voted on: what they come to (null where they do not), and how many
-- voted.
--
-- Takes `votes` (item, dimension, judge, choice; no choice is no vote) and `weights` (judge, dimension, weight).
CREATE TABLE combined AS
WITH counted AS (
    SELECT
        item,
        dimension,
        choice,
        count(*) AS votes,
        round(sum(coalesce(weight, 0)), 9) AS weight
    FROM votes
    LEFT JOIN weights USING (judge, dimension)
    WHERE choice IS NOT NULL
    GROUP BY item, dimension, choice
),

led AS (
    SELECT
        item,
        dimension,
        sum(votes) AS votes,
        arg_max(choice, votes) AS by_votes,
        max(votes) AS most_votes,
        arg_max(choice, weight) AS by_weight,
        max(weight) - coalesce(list_reverse_sort(list(weight))[2], 0) AS lead
    FROM counted
    GROUP BY item, dimension
)

SELECT
    item,
    dimension,
    votes,
    CASE $combine
        WHEN 'unanimity' THEN CASE WHEN most_votes = $judges THEN by_votes END
        WHEN 'majority' THEN CASE WHEN 2 * most_votes > $judges THEN by_votes END
        ELSE CASE WHEN lead > 0 THEN by_weight END
    END AS choice
FROM led
