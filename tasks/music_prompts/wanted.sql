-- Grain: one row a prompt: does it ask for its tags, and for no voice?
SELECT
    prompt_id AS id,
    split,
    true AS target,
    text AS prompt,
    genre,
    instrument,
    mood_theme,
    distribution,
    style
FROM prompts
