-- Grain: one row a triplet of `chunk`, in its order; the published table `triplets`.
SELECT
    left(md5(array_to_string(list_sort([a_id, b_id, c_id]), chr(10))), 16) AS triplet_id,
    $dataset AS dataset,
    $split AS split,
    CASE ring WHEN 0 THEN 'same_content' WHEN 3 THEN 'unmatched' ELSE 'same_source' END AS category,
    concat($dataset, '/', $split, '/', subset || '/', CASE ring
        WHEN 0 THEN 'content:' || content_id
        WHEN 1 THEN 'system:' || system_id
        WHEN 2 THEN 'speaker:' || speaker_id
        ELSE 'all'
    END) AS group_id,
    a_id,
    b_id,
    c_id,
    a_mos,
    b_mos,
    c_mos
FROM chunk
