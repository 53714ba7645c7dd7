-- Grain: one row a clip and split that names it; what a table without splits names, only where no split does.
CREATE TABLE everything AS
SELECT clip_sha256, split
FROM named
WHERE clip_sha256 IS NOT NULL
    AND (split <> $unsplit
        OR clip_sha256 NOT IN (SELECT clip_sha256 FROM named WHERE clip_sha256 IS NOT NULL AND split <> $unsplit))
