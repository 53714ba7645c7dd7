-- Grain: one row two clips of a triplet A > B > C; the chosen one is preferred. Clips are null without audio.
--
-- Which of the two a model is shown first follows from a hash of the two.
SELECT
    triplet_id || '-' || legs.name AS id,
    triplets.split,
    'chosen' AS target,
    legs.higher AS a_clip,
    legs.lower AS b_clip,
    chosen.clip_sha256 AS a_audio,
    rejected.clip_sha256 AS b_audio,
    substr(md5(id || ' first'), 1, 1) >= '8' AS swapped,
    triplets.dataset,
    triplets.category,
    triplet_id AS triplet,
    triplet_id AS cluster
FROM triplets
CROSS JOIN LATERAL (
    VALUES ('ab', triplets.a_id, triplets.b_id), ('bc', triplets.b_id, triplets.c_id), ('ac', triplets.a_id, triplets.c_id)
) AS legs (name, higher, lower)
JOIN ratings AS chosen ON chosen.sample_id = legs.higher
JOIN ratings AS rejected ON rejected.sample_id = legs.lower
