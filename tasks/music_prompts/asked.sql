-- Grain: one row a prompt, with the concepts that a reward can ask a judge about.
SELECT
    prompt_id AS id,
    split,
    text AS prompt,
    genre,
    instrument,
    mood_theme,
    distribution,
    style
FROM prompts
