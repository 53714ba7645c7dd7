-- Grain: one row a prompt that passed its checks; the published table `prompts`.
SELECT
    triplet_id AS prompt_id,
    $split AS split,
    answered.text,
    split_part(stratum, '_', 2) AS distribution,
    split_part(stratum, '_', 1) AS style,
    queue.genre_written AS genre,
    queue.instrument_written AS instrument,
    queue.mood_written AS mood_theme,
    answered.added AS added_instruments,
    answered.writer,
    answered.prompt,
    answered.request_key,
    answered.tries
FROM queue
JOIN answered USING (triplet_id)
WHERE (stratum = 'strict_ood') = ($split = 'ood')
ORDER BY stratum DESC, rank
