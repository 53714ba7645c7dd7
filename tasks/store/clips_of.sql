-- Grain: one row a clip that some row names beside a source, with no such source outside $sources. Rejects do not count:
-- they may name a source by another name.
SELECT clip.id
FROM refs AS clip
JOIN refs AS source ON source."table" = clip."table" AND source.row = clip.row AND source.kind = 'source'
WHERE clip.kind = 'clip' AND clip."table" <> $rejects
GROUP BY clip.id
HAVING bool_and(source.id IN (SELECT unnest($sources::VARCHAR[])))
