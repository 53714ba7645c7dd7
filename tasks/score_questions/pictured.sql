-- Grain: one row a kept thread, by key, with the dump's own id and where its images are
SELECT threads.thread_key, candidates.id, candidates.image_from, candidates.text, url, media_metadata, gallery_data, preview, file, line
FROM threads
JOIN candidates
    ON threads.thread_key = left(sha256(getvariable('salt') || chr(0) || 'thread' || chr(0) || candidates.id), 16)
ORDER BY threads.thread_key
