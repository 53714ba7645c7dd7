-- Grain: one row a generation that can be judged, with its clip.
SELECT generations.row, media.clip_sha256, generations.audio
FROM generations
JOIN media ON media.kind = 'generation' AND media.item = generations.row
WHERE generations.row NOT IN (SELECT row FROM refused_generations)
ORDER BY generations.row
