-- Grain: one row a vote that was read, with names for its prompt and clips.
--
-- A prompt is what it says: words without regard to case and spacing, lyrics, and the bytes (else the name) of its
-- reference. One that says nothing goes by the source's id, else by its two clips, so that votes on them meet. CMI-Pref
-- counts every prompt as text, also the one that is lyrics alone. A clip that a source withholds has its row's name: it
-- is nobody else's.
CREATE TABLE known AS
WITH heard AS (
    SELECT
        votes.* EXCLUDE (vote_id),
        votes.vote_id AS own_id,
        concat(votes.source, '/', coalesce(
            votes.vote_id, concat(source_file, ':', line, '#', row_number() OVER same_line))) AS vote_id,
        media_a.clip_sha256 AS sha_a,
        media_b.clip_sha256 AS sha_b,
        media_r.clip_sha256 AS sha_reference,
        coalesce(media_a.reason, media_b.reason, media_r.reason) AS audio_reason,
        CASE
            WHEN media_a.reason IS NOT NULL THEN concat(audio_a, ': ', media_a.detail)
            WHEN media_b.reason IS NOT NULL THEN concat(audio_b, ': ', media_b.detail)
            WHEN media_r.reason IS NOT NULL THEN concat('reference ', reference, ': ', media_r.detail)
        END AS audio_detail,
        coalesce(media_r.clip_sha256, votes.source || '/' || reference) AS reference_key
    FROM votes
    LEFT JOIN media AS media_a ON media_a.source = votes.source AND media_a.file = votes.audio_a
    LEFT JOIN media AS media_b ON media_b.source = votes.source AND media_b.file = votes.audio_b
    LEFT JOIN media AS media_r ON media_r.source = votes.source AND media_r.file = votes.reference
    WINDOW same_line AS (PARTITION BY votes.source, source_file, line ORDER BY row)
)

SELECT
    *,
    CASE WHEN audio_a IS NULL THEN concat(vote_id, '/a') ELSE concat(source, '/', audio_a) END AS clip_a,
    CASE WHEN audio_b IS NULL THEN concat(vote_id, '/b') ELSE concat(source, '/', audio_b) END AS clip_b,
    left(sha256(CASE
        WHEN coalesce(text, lyrics, reference) IS NOT NULL THEN concat_ws(chr(31),
            'says', plain_words(text), plain_words(lyrics), coalesce(reference_key, ''))
        WHEN prompt_id IS NOT NULL THEN concat_ws(chr(31), 'id', source, prompt_id)
        ELSE concat_ws(chr(31), 'clips', least(clip_a, clip_b), greatest(clip_a, clip_b))
    END), 16) AS prompt_key,
    CASE WHEN coalesce(text, lyrics, reference) IS NULL THEN 'none' ELSE concat_ws('+',
        CASE WHEN text IS NOT NULL OR task = 'cmi-pref' THEN 'text' END,
        CASE WHEN lyrics IS NOT NULL THEN 'lyrics' END,
        CASE WHEN reference IS NOT NULL THEN 'audio' END) END AS modality
FROM heard
JOIN sources USING (source)
