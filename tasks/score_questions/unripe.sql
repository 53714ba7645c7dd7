-- Grain: one row: threads with a comment whose votes decide nothing
SELECT count(DISTINCT submission) FROM answers WHERE unripe
