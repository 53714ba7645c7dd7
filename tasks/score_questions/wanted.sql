-- Grain: one row: a bit for each hash of a link to a thread, set for the candidates, with the kind before their id or not
SELECT coalesce(
    bitstring_agg((hash(link) % getvariable('bits'))::INTEGER, 0, getvariable('bits')::INTEGER - 1),
    bitstring('0', getvariable('bits')::INTEGER)
)
FROM (SELECT 't3_' || id AS link FROM candidates UNION ALL SELECT id FROM candidates)
