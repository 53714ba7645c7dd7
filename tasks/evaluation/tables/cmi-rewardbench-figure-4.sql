-- Grain: one row a confidence, and their mean; the bars of CMI-RewardBench's Figure 4.
WITH given AS (
    SELECT unnest([
        {'dimension': 'alignment', 'confidence': confidence_alignment},
        {'dimension': 'musicality', 'confidence': confidence_musicality}
    ], recursive := true)
    FROM votes
),

counted AS (
    SELECT
        confidence,
        count(*) FILTER (dimension = 'alignment') AS alignment,
        count(*) FILTER (dimension = 'musicality') AS musicality
    FROM given
    WHERE confidence IS NOT NULL
    GROUP BY confidence
)

SELECT
    format('{:g}', confidence) AS "Confidence",
    format('{:,}', alignment) AS "IF, votes",
    format('{:.2f}', 100 * alignment / nullif(sum(alignment) OVER (), 0)) AS "IF, %",
    format('{:,}', musicality) AS "MQ, votes",
    format('{:.2f}', 100 * musicality / nullif(sum(musicality) OVER (), 0)) AS "MQ, %"
FROM (FROM counted ORDER BY confidence)
UNION ALL
SELECT
    'Mean',
    format('{:.3f}', sum(confidence * alignment) / nullif(sum(alignment), 0)),
    '',
    format('{:.3f}', sum(confidence * musicality) / nullif(sum(musicality), 0)),
    ''
FROM counted
HAVING count(*) > 0
