-- Grain: one row a tag of the track list; the published table `tags`.
--
-- A criterion counts for a tag only where its figure is known: mentions need captions, recall needs a judge. Once a
-- judge was asked, a tag on which it never answered is not verified, and left out.
CREATE TABLE tags AS
WITH counted AS (
    SELECT category, tag, count(*) AS tracks
    FROM track_tags
    GROUP BY category, tag
),

known AS (
    SELECT
        category,
        tag,
        lexicon.written,
        counted.tracks,
        CASE WHEN $captioned THEN coalesce(mentions.captions, 0) END AS mentions,
        lexicon.vocal,
        lexicon.excluded,
        recalls.asked,
        recalls.detected,
        recalls.untagged_asked,
        recalls.untagged_detected
    FROM counted
    JOIN lexicon USING (category, tag)
    LEFT JOIN mentions USING (category, tag)
    LEFT JOIN recalls USING (category, tag)
),

judged AS (
    SELECT
        *,
        CASE
            WHEN tracks < $popularity THEN 'unpopular'
            WHEN vocal IS NOT NULL THEN 'vocal'
            WHEN excluded THEN 'excluded'
            WHEN mentions < $mentions THEN 'rarely_mentioned'
            WHEN $verified AND coalesce(asked, 0) = 0 THEN 'not_verified'
            WHEN detected / nullif(asked, 0) < $recall THEN 'low_recall'
        END AS criterion
    FROM known
)

SELECT
    category,
    tag,
    written,
    tracks,
    mentions,
    vocal,
    asked,
    detected,
    CASE WHEN asked > 0 THEN detected / asked END AS recall,
    CASE WHEN asked > 0 THEN wilson(detected, asked).low END AS recall_low,
    CASE WHEN asked > 0 THEN wilson(detected, asked).high END AS recall_high,
    untagged_asked,
    untagged_detected,
    CASE WHEN untagged_asked > 0 THEN 1 - untagged_detected / untagged_asked END AS specificity,
    CASE WHEN untagged_asked > 0 THEN wilson(untagged_asked - untagged_detected, untagged_asked).low END AS specificity_low,
    CASE WHEN untagged_asked > 0 THEN wilson(untagged_asked - untagged_detected, untagged_asked).high END AS specificity_high,
    coalesce(asked, 0) > 0 AS verified,
    criterion IS NULL AS in_pool,
    criterion
FROM judged
