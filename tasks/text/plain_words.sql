-- Grain: a macro; what a prompt says without regard to case, spacing and forms of Unicode, nothing being empty: by it, prompts
-- are the same.
CREATE OR REPLACE MACRO plain_words(said) AS lower(
    trim(regexp_replace(regexp_replace(nfc_normalize(coalesce(said, '')), '\p{Cf}+', '', 'g'), '[\s\p{Z}]+', ' ', 'g'))
)
