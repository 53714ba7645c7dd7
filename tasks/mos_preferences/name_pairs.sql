-- Grain: one row a pair of `chunk`, in its order; the published table `pairs`.
SELECT
    left(md5(concat(least(chosen_id, rejected_id), chr(10), greatest(chosen_id, rejected_id))), 16) AS pair_id,
    $dataset AS dataset,
    $split AS split,
    CASE ring WHEN 0 THEN 'same_content' WHEN 3 THEN 'unmatched' ELSE 'same_source' END AS category,
    concat($dataset, '/', $split, '/', subset || '/', CASE ring
        WHEN 0 THEN 'content:' || content_id
        WHEN 1 THEN 'system:' || system_id
        WHEN 2 THEN 'speaker:' || speaker_id
        ELSE 'all'
    END) AS group_id,
    chosen_id,
    rejected_id,
    chosen_mos,
    rejected_mos,
    mos_gap,
    least(scaled_gap / $widest_gap, 1.0) AS mos_gap_normalized,
    gap_decile,
    chosen_mos_se,
    rejected_mos_se,
    order_chance(mos_gap, chosen_mos_se, rejected_mos_se) AS chosen_better_probability
FROM chunk
