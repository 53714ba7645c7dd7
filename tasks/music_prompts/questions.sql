-- Grain: one row a tag and a track that carries it, to be asked about; tags that every other criterion lets pass.
SELECT sampled.category, sampled.tag, tags.written, sampled.track_id, sampled.file
FROM sampled
JOIN tags ON tags.category = sampled.category AND tags.tag = sampled.tag AND tags.criterion IS NULL
ORDER BY sampled.category, sampled.tag, sampled.place
