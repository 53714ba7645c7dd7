-- Grain: one row a clip or pair that the critic is to hear, with the files as their list names them; a clip's questions
-- stand together, so that it is decoded once.
SELECT
    items.* EXCLUDE (place),
    one.file AS first_file,
    one.audio AS first_audio,
    other.file AS second_file,
    other.audio AS second_audio
FROM critique_items AS items
JOIN placed AS one ON one.dataset = items.dataset AND concat(one.dataset, '/', one.file) = items.first_id
LEFT JOIN placed AS other ON other.dataset = items.dataset AND concat(other.dataset, '/', other.file) = items.second_id
WHERE items.place <= coalesce(if(items.kind = 'single', $clips::BIGINT, $pairs::BIGINT), 9223372036854775807)
ORDER BY items.first_id, items.kind, items.item
