-- Grain: one row a label that prefers a clip on $dimension; both clips stand in the prompt, the answers are letters.
SELECT
    labels.pair_id AS id,
    labels.split,
    -- The pieces of text between the clips: the reference, if there is one, then clip A and clip B.
    list_concat(
        CASE
            WHEN pairs.reference_sha256 IS NULL THEN [concat(request, E'\nClip A: ')]
            ELSE ['Reference audio: ', concat(E'\n', request, E'\nClip A: ')]
        END,
        [E'\nClip B: ', concat(E'\n', $question)]
    ) AS prompt,
    list_concat(
        CASE WHEN pairs.reference_sha256 IS NULL THEN [] ELSE [pairs.reference_sha256] END,
        [a.clip_sha256, b.clip_sha256]
    ) AS audios,
    upper(choice) AS chosen,
    CASE choice WHEN 'a' THEN 'B' ELSE 'A' END AS rejected,
    labels.modality,
    labels.judge
FROM (SELECT *, CASE $dimension WHEN 'musicality' THEN musicality ELSE alignment END AS choice FROM labels) AS labels
JOIN (
    SELECT *, 'Prompt: ' || concat_ws(E'\n\nLyrics:\n', text, lyrics) AS request FROM pairs
) AS pairs USING (pair_id)
JOIN clips AS a ON a.generation_id = labels.generation_a
JOIN clips AS b ON b.generation_id = labels.generation_b
WHERE choice IN ('a', 'b')
