-- Grain: a macro; whether lyrics are sung: `instrumental` where they hold but marks such as [Chorus] and words
-- that say that there are none (`NOT_SUNG` in tasks/pipeline/references.py); null without lyrics.
CREATE OR REPLACE MACRO voice_of(lyrics) AS CASE
    WHEN regexp_full_match(
        lower(regexp_replace(lyrics, '\[[^\]\n]*\]|\([^)\n]*\)', ' ', 'g')),
        '\s*((instrumental|none|n/a|no|lyrics|vocals)(\s+|$))*'
    ) THEN 'instrumental'
    WHEN lyrics IS NOT NULL THEN 'vocal'
END
