"""Find the start and end of an answer in a model's text, without its thoughts before and its template's marks.

The marks are from chat templates: Qwen, DeepSeek and most others think in `<think>`, Kimi in `◁think▷`, Magistral in
`[THINK]`, Gemma in `<unused94>`, gpt-oss in channels of its Harmony format.
"""

from __future__ import annotations

import re

from earmark.tasks.annotation.errors import BadAnswer, Truncated, one_line

_BEGINS = r"<think>|<thinking>|<thought>|<seed:think>|◁think▷|\[THINK\]|<\|begin_of_thought\|>|<unused94>"
_ENDS = r"</think>|</thinking>|</thought>|</seed:think>|◁/think▷|\[/THINK\]|<\|end_of_thought\|>|<unused95>"
BEGINS = re.compile(rf"{_BEGINS}|<\|channel\|>(?!final)", re.IGNORECASE)
ENDS = re.compile(rf"{_ENDS}|<\|channel\|>final<\|message\|>|\A\s*analysis.*?assistantfinal", re.IGNORECASE | re.DOTALL)
TURN_BEGINS = re.compile(
    r"\A\s*(<s>|<bos>|<\|begin_of_text\|>|<\|im_start\|>(assistant)?|<\|start\|>assistant|<start_of_turn>model|"
    r"<\|begin_of_solution\|>|<\|start_header_id\|>assistant<\|end_header_id\|>)\s*"
)
TURN_ENDS = re.compile(
    r"<\|(im_end|endoftext|end_of_text|eot_id|eom_id|end|return|end_of_solution)\|>|<｜end▁of▁sentence｜>|"
    r"<end_of_turn>|(</s>|<eos>)\s*\Z"
)
_SPECIAL = r"<\|[\w.:/-]{1,60}\|>|<｜[^<>｜]{1,60}｜>"
SPECIAL = re.compile(_SPECIAL)
MARKS = f"{_BEGINS}|{_ENDS}|{_SPECIAL}"
"""Pattern of marks no answer holds, also valid for RE2."""


def spoken(text: str) -> str:
    """Return the answer in a model's text, without surrounding blanks.

    Raises:
        Truncated: the thoughts do not end.
        BadAnswer: a special token of a template stands in the answer.
    """
    ends = [found.end() for found in ENDS.finditer(text)]
    text = text[ends[-1] :] if ends else text
    if BEGINS.search(text):  # drafts in thoughts are no answer
        raise Truncated("the answer ends before its thinking does")
    while begun := TURN_BEGINS.match(text):
        text = text[begun.end() :]
    if ended := TURN_ENDS.search(text):  # the rest is another turn
        text = text[: ended.start()]
    if leaked := SPECIAL.search(text):
        raise BadAnswer(f"expected an answer, found the special token {one_line(leaked[0])} in it")
    return text.strip()
