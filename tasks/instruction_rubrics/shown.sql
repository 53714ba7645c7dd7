-- Grain: one row a sample in one of its languages
CREATE VIEW shown AS SELECT * FROM samples QUALIFY language = min(language) OVER (PARTITION BY sample_id)
