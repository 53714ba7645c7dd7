-- Grain: one row a piece of a track that every stage of its pipeline accepted, with the text of the last one.
SELECT
    said.row,
    said.pipeline,
    said.segment,
    said.text
FROM said
JOIN pipelines ON said.pipeline = pipelines.name AND said.stage = pipelines.last
WHERE (said.row, said.pipeline, said.segment) NOT IN (SELECT (row, pipeline, segment) FROM said WHERE reason IS NOT NULL)
ORDER BY pipelines.place, said.row, said.segment
