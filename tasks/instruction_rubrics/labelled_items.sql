-- Grain: one row a labelled item of a sample and language: does the clip do what the item asks? Items of one sample are
-- dependent.
SELECT
    concat_ws('-', labels.sample_id, labels.item, labels.language) AS id,
    labels.split,
    labels.answer AS target,
    labels.clip_sha256 AS clip_audio,
    items.question,
    labels.language,
    samples.subset,
    samples.domain,
    samples.kind,
    items.dimension,
    labels.labelled_by,
    labels.sample_id AS cluster
FROM labels
JOIN samples USING (sample_id, language)
JOIN items USING (instruction_id, item, language)
