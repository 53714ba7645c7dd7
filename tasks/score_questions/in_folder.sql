-- Grain: one row: a bit for each hash of an id that a file of the folder of images may be named by
SELECT coalesce(
    bitstring_agg((hash(id) % getvariable('bits'))::INTEGER, 0, getvariable('bits')::INTEGER - 1),
    bitstring('0', getvariable('bits')::INTEGER)
)
FROM pictured
