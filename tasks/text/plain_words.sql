-- Grain: a macro; what a prompt says without regard to case and spacing, nothing being empty: by it, prompts are the same.
CREATE OR REPLACE MACRO plain_words(said) AS lower(trim(regexp_replace(coalesce(said, ''), '\s+', ' ', 'g')))
