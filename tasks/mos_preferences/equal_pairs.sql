-- Grain: one row; how many pairs that `meet_pairs` put side by side are of this kind and have equal MOS.
SELECT count(*)
FROM met
WHERE other_clip IS NOT NULL
    AND abs(mos - other_mos) * to_five < 1e-9
    AND ring_of(content, other_content, system, other_system, speaker, other_speaker, condition, other_condition) = $ring
