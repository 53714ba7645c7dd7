-- Grain: one row a sample and language: the clip, the instruction and its numbered items, and the labels as the answer.
WITH asked AS (
    SELECT
        labels.sample_id,
        labels.language,
        string_agg(labels.item || ': ' || regexp_replace(items.question, '\s+', ' ', 'g'), E'\n' ORDER BY labels.item)
            AS questions,
        list({
            'id': labels.item, 'answer': if(labels.answer, 'yes', 'no'), 'evidence': labels.rationale
        } ORDER BY labels.item) AS said
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
    to_json(said)::VARCHAR AS completion,
    follows,
    language,
    subset,
    domain,
    kind
FROM samples
JOIN asked USING (sample_id, language)
