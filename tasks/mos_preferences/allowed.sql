-- Grain: a view; one row a candidate pair within the limit of pairs a clip.
CREATE VIEW allowed AS
SELECT candidates.* FROM candidates ANTI JOIN beyond ON beyond.pair = candidates.rowid
