-- Grain: one row an example caption that was shown for a prompt; the published table `shots`.
SELECT
    shots.triplet_id AS prompt_id,
    shots.place,
    shots.pipeline,
    shots.item,
    captions.text,
    CASE WHEN list_contains($versions::VARCHAR[], shots.pipeline)
        THEN regexp_extract(shots.item, '^(.*)/[^/]*/[^/]*$', 1) END AS clip_id,
    captions.source
FROM shots
JOIN captions USING (pipeline, item)
SEMI JOIN answered USING (triplet_id)
ORDER BY prompt_id, place
