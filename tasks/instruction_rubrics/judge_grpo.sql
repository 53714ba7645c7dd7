-- Grain: one row a sample and language: the clip, the instruction and its numbered items, and what the rewards need.
WITH asked AS (
    SELECT
        labels.sample_id,
        labels.language,
        string_agg(labels.item || ': ' || regexp_replace(items.question, '\s+', ' ', 'g'), E'\n' ORDER BY labels.item)
            AS questions,
        list(labels.answer ORDER BY labels.item) AS answers
    FROM labels
    JOIN samples USING (sample_id, language)
    JOIN items USING (instruction_id, item, language)
    GROUP BY ALL
)
SELECT
    sample_id || '-' || language AS id,
    split,
    [
        if(language = 'zh', $ask_zh, $ask_en) || E'\n',
        E'\n' || if(language = 'zh', '指令：', 'The instruction: ') || regexp_replace(instruction, '\s+', ' ', 'g')
        || E'\n' || if(language = 'zh', '问题：', 'The items:') || E'\n' || questions
    ] AS prompt,
    [clip_sha256] AS audios,
    answers,
    follows,
    language,
    subset,
    domain,
    kind
FROM samples
JOIN asked USING (sample_id, language)
