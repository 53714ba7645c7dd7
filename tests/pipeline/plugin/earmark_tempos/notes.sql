-- Grain: a row a note.
SELECT note_id AS id, split, text, bpm FROM notes ORDER BY note_id
