-- Grain: a macro; the kind of group that a pair of clips belongs to, or null where none may pair them.
--
-- 0 same content, and another system, speaker or condition; 1 same system, other content; 2 same speaker, other system
-- and content; 3 neither content nor system nor speaker known to be shared. What is unknown is neither the same nor
-- another, but for two clips of one system in a list that names no contents: a listening test plays no stimulus under
-- two names, so they are taken to differ in content. Every pair has at most one kind, so none is drawn from two groups.
CREATE MACRO ring_of(content_a, content_b, system_a, system_b, speaker_a, speaker_b, condition_a, condition_b) AS
    CASE
        WHEN content_a = content_b THEN
            CASE WHEN system_a <> system_b OR speaker_a <> speaker_b OR condition_a <> condition_b THEN 0 END
        WHEN system_a = system_b
            THEN CASE WHEN content_a <> content_b OR (content_a IS NULL AND content_b IS NULL) THEN 1 END
        WHEN speaker_a = speaker_b THEN CASE WHEN content_a <> content_b THEN 2 END
        ELSE 3
    END
