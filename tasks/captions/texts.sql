-- Grain: one row a piece of a track that every stage of its pipeline accepted, with the text of the last one.
SELECT
    answers.row,
    answers.pipeline,
    answers.segment,
    answers.text
FROM answers
JOIN pipelines ON answers.pipeline = pipelines.name AND answers.ask = pipelines.last
WHERE
    (answers.row, answers.pipeline, answers.segment)
    NOT IN (SELECT (row, pipeline, segment) FROM answers WHERE reason IS NOT NULL)
ORDER BY pipelines.place, answers.row, answers.segment
