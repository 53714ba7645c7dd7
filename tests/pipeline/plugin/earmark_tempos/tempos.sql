-- Grain: a row a note, with the tempo that is true of it.
SELECT note_id AS id, split, bpm AS target, text FROM notes ORDER BY note_id
