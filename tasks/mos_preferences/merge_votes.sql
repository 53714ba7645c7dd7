-- Grain: one row a clip (dataset and file): the mean over its listeners, each counted once, or over its rows.
--
-- A listener who rated a clip more than once counts by the mean of these ratings, or by each of them (`all`). A row without a listener is a rating
-- too, unless it states a published mean: such means weigh the ratings behind them, where all tell how many these are.
-- Rows that `judge_rows` left out have no part. Sums run over sorted lists, since a parallel sum of floats depends on the
-- order in which threads finish, and a mean shall not depend on the order of rows.
CREATE TABLE merged AS
WITH accepted AS (
    SELECT * FROM imported ANTI JOIN repeated USING (row)
),

voters AS (
    SELECT
        dataset,
        file,
        min(row) AS row,
        list_sum(list_sort(list(score))) / count(*) AS score,
        bool_or(listener_id IS NULL AND (means OR votes IS NOT NULL OR mos_std IS NOT NULL)) AS is_mean,
        CASE WHEN is_mean THEN any_value(votes) ELSE 1 END AS votes,
        any_value(mos_std) AS mos_std
    FROM accepted
    JOIN sources USING (dataset)
    GROUP BY dataset, file, listener_id, CASE WHEN listener_id IS NULL OR repeat_votes = 'all' THEN row END
),

clips AS (
    SELECT
        min(row) AS row,
        count(*) AS voters,
        list_sort(list({'score': score, 'votes': votes, 'std': mos_std})) AS parts,
        CASE WHEN count(votes) = count(*) THEN sum(votes)::BIGINT END AS total,
        bool_and(votes = 1 OR (votes > 1 AND mos_std IS NOT NULL)) AS spread_known
    FROM voters
    GROUP BY dataset, file
),

averaged AS (
    SELECT
        *,
        CASE
            WHEN voters = 1 THEN parts[1].score
            WHEN total IS NULL THEN list_sum([part.score FOR part IN parts]) / voters
            ELSE list_sum([part.votes * part.score FOR part IN parts]) / total
        END AS mos
    FROM clips
)

SELECT
    averaged.row,
    first_row.* EXCLUDE (row, score, votes, mos_std, listener_id),
    mos,
    CASE WHEN voters = 1 AND first_row.listener_id IS NULL THEN first_row.votes ELSE total END AS votes,
    CASE
        WHEN voters = 1 THEN CASE WHEN first_row.listener_id IS NULL THEN first_row.mos_std END
        WHEN spread_known THEN sqrt(
            list_sum([
                part.votes * (part.score - mos) ** 2
                + CASE WHEN part.votes > 1 THEN (part.votes - 1) * part.std ** 2 ELSE 0 END
                FOR part IN parts
            ]) / (total - 1)
        )
    END AS mos_std
FROM averaged
JOIN accepted AS first_row USING (row)
