-- Grain: a table; one row a pair that may be used (filled by draw_pairs).
CREATE TABLE candidates (
    chosen INTEGER, rejected INTEGER, cell SMALLINT, ring TINYINT, category TINYINT, level SMALLINT, hash UBIGINT,
    mos_gap DOUBLE, bin TINYINT
)
