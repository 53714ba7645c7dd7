-- Grain: one row a tag and a track, to be asked about; tags that every other criterion lets pass.
SELECT sampled.category, sampled.tag, tags.written, sampled.track_id, sampled.file, sampled.carried
FROM sampled
JOIN tags ON tags.category = sampled.category AND tags.tag = sampled.tag AND tags.criterion IS NULL
ORDER BY sampled.category, sampled.tag, sampled.carried DESC, sampled.place
