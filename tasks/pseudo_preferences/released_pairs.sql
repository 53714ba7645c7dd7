-- Grain: one row a released label, with what was measured of its clips, and why it cannot be used (null where it can).
CREATE TABLE released_pairs AS
WITH measured AS (
    SELECT
        read.* EXCLUDE (pair_id, prompt_id, text, model_a, model_b, judge),
        pair_id AS own_id,
        coalesce(text, '') AS text,
        coalesce(model_a, 'unknown') AS model_a,
        coalesce(model_b, 'unknown') AS model_b,
        coalesce(judge, 'unknown') AS judge,
        reference_clip.clip_sha256 AS reference_sha256,
        coalesce(
            prompt_id, left(md5(concat_ws(chr(10), read.text, read.lyrics, reference_clip.clip_sha256)), 16)
        ) AS prompt_id,
        a.clip_sha256 AS sha_a,
        b.clip_sha256 AS sha_b,
        least(a.duration_s, b.duration_s) AS shortest_s,
        least(a.peak_dbfs, b.peak_dbfs) AS peak_dbfs,
        coalesce(a.reason, b.reason, reference_clip.reason) AS audio_reason,
        coalesce(a.detail, b.detail, 'reference audio: ' || reference_clip.detail) AS audio_detail
    FROM read
    JOIN media AS a ON a.file = audio_a
    JOIN media AS b ON b.file = audio_b
    LEFT JOIN media AS reference_clip ON reference_clip.file = read.reference
),

generated AS (  -- of its own: above, a name means the column that was read
    SELECT
        *,
        left(md5(concat_ws(chr(10), prompt_id, model_a, sha_a)), 16) AS generation_a,
        left(md5(concat_ws(chr(10), prompt_id, model_b, sha_b)), 16) AS generation_b
    FROM measured
),

named AS (
    SELECT
        *,
        coalesce(
            own_id,
            left(md5(concat(least(generation_a, generation_b), chr(10), greatest(generation_a, generation_b))), 16)
        ) AS pair_id
    FROM generated
),

faulty AS (
    SELECT
        *,
        CASE
            WHEN audio_reason IS NOT NULL THEN audio_reason
            WHEN sha_a = sha_b THEN 'same_clip'
            WHEN shortest_s < $shortest_s THEN 'audio_too_short'
            WHEN peak_dbfs < $silence_dbfs THEN 'audio_silent'
        END AS fault,
        CASE
            WHEN audio_reason IS NOT NULL THEN audio_detail
            WHEN sha_a = sha_b THEN 'expected two clips, found the same bytes twice'
            WHEN shortest_s < $shortest_s
                THEN concat('expected at least ', $shortest_s, ' s, found ', round(shortest_s, 3))
            WHEN peak_dbfs < $silence_dbfs
                THEN concat('expected a peak above ', $silence_dbfs, ' dBFS, found ', round(peak_dbfs, 1))
        END AS fault_detail
    FROM named
)

SELECT
    * EXCLUDE (fault, fault_detail),
    fault IS NULL AND row_number() OVER (PARTITION BY pair_id, fault IS NULL ORDER BY row) > 1 AS twice,
    CASE WHEN twice THEN 'duplicate_id' ELSE fault END AS reason,
    CASE WHEN twice THEN 'expected each pair once, found an earlier label on it' ELSE fault_detail END AS detail
FROM faulty
