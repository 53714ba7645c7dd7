-- Grain: one row an ask and who answers it: the rows that came to it, those with an answer that passed its check, those of
-- these that the walk did not give up here; why the others were lost, the commonest reason first, with an example of each.
-- In the order in which rows come to the asks.
WITH questions AS (
    SELECT "at" AS place, file_row_number, ask, role, annotator, reason, detail, request_key, final,
        CASE WHEN reason IS NOT NULL THEN value END AS value -- of refused answers alone: the others may fill the memory
    FROM read_parquet($draws, file_row_number = true, hive_partitioning = false)
    WHERE last
),
ends AS (
    SELECT "at" AS place, stage, reason, detail
    FROM read_parquet($results, hive_partitioning = false)
    WHERE reason IS NOT NULL
),
rows AS (
    SELECT ask, role, annotator, place, min(file_row_number) AS number, bool_or(reason IS NULL) AS answered,
        arg_min({'reason': reason, 'detail': detail, 'value': value, 'key': request_key, 'final': final},
            (reason IS NULL, file_row_number)) AS question
    FROM questions
    GROUP BY ALL
),
ended AS (
    SELECT r.*, e.reason AS end_reason, e.detail AS end_detail, r.answered AND e.reason IS NULL AS passed
    FROM rows r LEFT JOIN ends e ON e.place = r.place AND e.stage = r.ask
),
why AS (
    SELECT ask, role, annotator, NOT answered AS failed,
        CASE WHEN answered THEN end_reason ELSE question.reason END AS reason,
        count(*) AS n, bool_and(answered OR question.final) AS final,
        arg_min({
            'detail': CASE WHEN answered THEN end_detail ELSE question.detail END,
            'value': question.value,
            'key': question.key
        }, place) AS one
    FROM ended
    WHERE NOT passed
    GROUP BY ALL
),
reasons AS (
    SELECT ask, role, annotator,
        list({'reason': reason, 'rows': n, 'failed': failed, 'final': final, 'one': one} ORDER BY n DESC, reason) AS why
    FROM why
    GROUP BY ALL
)
SELECT e.ask, e.role, e.annotator, count(*) AS came, count(*) FILTER (e.answered) AS answered,
    count(*) FILTER (e.passed) AS passed, any_value(r.why) AS why
FROM ended e LEFT JOIN reasons r ON r.ask = e.ask AND r.role = e.role AND r.annotator = e.annotator
GROUP BY e.ask, e.role, e.annotator
ORDER BY min((e.place, e.number))
