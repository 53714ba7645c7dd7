-- Grain: one row a sample and language: the clip, the instruction and its numbered items, and the labels as the answer.
WITH numbered AS (  -- an item that nobody could tell for a sample is left out, and the others are numbered anew
    SELECT
        * EXCLUDE (item),
        item AS place,
        row_number() OVER (PARTITION BY sample_id, language ORDER BY item) AS item
    FROM labels
),

asked AS (
    SELECT
        numbered.sample_id,
        numbered.language,
        string_agg(numbered.item || ': ' || regexp_replace(items.question, '\s+', ' ', 'g'), E'\n' ORDER BY numbered.item)
            AS questions,
        list({'id': numbered.item, 'question': items.question} ORDER BY numbered.item) AS members,
        list({
            'id': numbered.item, 'answer': if(numbered.answer, 'yes', 'no'), 'evidence': numbered.rationale
        } ORDER BY numbered.item) AS said
    FROM numbered
    JOIN samples USING (sample_id, language)
    JOIN items
        ON samples.instruction_id = items.instruction_id AND numbered.place = items.item
        AND samples.language = items.language
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
    kind,
    {
        'prompt': 'rubric-judge-' || language, 'clips': ['clip'], 'instruction': instruction, 'items': members
    } AS wording
FROM samples
JOIN asked USING (sample_id, language)
