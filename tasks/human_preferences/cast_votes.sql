-- Grain: one row a vote that counts, with its comparison; `flipped` where it was shown the other way round.
--
-- The first vote on two clips of a prompt says which of them is a.
CREATE TABLE cast_votes AS
SELECT
    *,
    first(clip_a) OVER pair <> clip_a AS flipped,
    row_number() OVER pair = 1 AS is_first,
    left(sha256(concat_ws(chr(31), prompt_key, least(clip_a, clip_b), greatest(clip_a, clip_b))), 16) AS comparison_id
FROM known
WHERE row NOT IN (SELECT row FROM refused_votes)
WINDOW pair AS (
    PARTITION BY prompt_key, least(clip_a, clip_b), greatest(clip_a, clip_b)
    ORDER BY row ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
)
