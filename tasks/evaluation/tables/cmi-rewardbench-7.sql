-- Grain: one row a figure of votes on both dimensions; CMI-RewardBench's Table 7.
WITH both_said AS (
    SELECT
        coalesce(any_value(votes) FILTER (preferred = 'same'), 0) AS same,
        coalesce(any_value(votes) FILTER (preferred = 'different'), 0) AS different,
        any_value(format('IF: {:.3f}, MQ: {:.3f}', confidence_alignment, confidence_musicality))
            FILTER (preferred = 'same') AS confidence_same,
        any_value(format('IF: {:.3f}, MQ: {:.3f}', confidence_alignment, confidence_musicality))
            FILTER (preferred = 'different') AS confidence_different
    FROM dimensions
    WHERE source = 'all'
    HAVING count(*) > 0
)

SELECT unnest([
    {'Metric': '#Votes with same preference', 'Value': format('{:,}', same)},
    {'Metric': '#Votes with different preference', 'Value': format('{:,}', different)},
    {'Metric': 'Agreement rate', 'Value': format('{:.3f}', same / (same + different))},
    {'Metric': 'Avg. confidence (same Pref.)', 'Value': confidence_same},
    {'Metric': 'Avg. confidence (diff. Pref.)', 'Value': confidence_different}
], recursive := true)
FROM both_said
