-- Grain: a table; one row three clips that may be a triplet (filled by draw_triplets).
CREATE TABLE triplet_candidates (
    cell SMALLINT, ring TINYINT, category TINYINT, level SMALLINT, hash UBIGINT, a INTEGER, b INTEGER, c INTEGER
)
