-- Grain: one row a clip (dataset and file): its mean over the listeners' ratings, or its published mean.
--
-- Rows that `judge_rows` found to repeat or contradict a clip's first row are left out.
-- Sums run over sorted lists, since a parallel sum of floats depends on the order in which threads finish.
CREATE TABLE merged AS
WITH accepted AS (
    SELECT * FROM imported ANTI JOIN repeated USING (row)
),

clips AS (
    SELECT
        dataset,
        file,
        min(row) AS row,
        list_sort(list(score) FILTER (listener_id IS NOT NULL)) AS ratings
    FROM accepted
    GROUP BY dataset, file
)
SELECT
    clips.row,
    first_row.* EXCLUDE (row, score, votes, mos_std, listener_id),
    CASE WHEN first_row.listener_id IS NULL THEN first_row.score ELSE list_sum(ratings) / len(ratings) END AS mos,
    CASE WHEN first_row.listener_id IS NULL THEN first_row.votes ELSE len(ratings) END AS votes,
    CASE
        WHEN first_row.listener_id IS NULL THEN first_row.mos_std
        WHEN len(ratings) > 1 THEN sqrt(
            list_sum([(rating - list_sum(ratings) / len(ratings)) ** 2 FOR rating IN ratings]) / (len(ratings) - 1)
        )
    END AS mos_std
FROM clips
JOIN accepted AS first_row USING (row)
