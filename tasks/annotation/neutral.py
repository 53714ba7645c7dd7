"""Neutralise text from outside for a model: remove hidden characters and break a model's own marks."""

from __future__ import annotations

import re

from earmark.schemas.unseen import seen

_WORDS = (
    "s|bos|eos|pad|unk|mask|cls|sep|think|start_of_turn|end_of_turn|(?:start|end)_of_(?:image|audio)"
    "|tools|tool_calls?|tool_response|function_call|image|img|video|audio|speech|sound|image_placeholder|image_id"
    "|im_start|im_end|im_patch|vision_start|vision_end|(?:image|audio)_soft_token|fake_token_around_image|img_context"
    "|[a-z_]+_token|extra_id_\\d+|unused\\d+|sop|eop"
)
"""Names between < and > in the vocabularies and chat templates of common models; case does not matter."""
_BRACKETS = (
    "INST|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|SYSTEM_PROMPT|IMG|IMG_BREAK|IMG_END|AUDIO|BEGIN_AUDIO"
    "|THINK|gMASK|sMASK|MASK|CLS|SEP|PAD|UNK"
)
_MARKS = re.compile(
    rf"<\|(?=[^\s|])|(?<=[^\s|])\|>|<(?=<?/?(?i:sys)>>|/?(?i:{_WORDS})\s*/?>)|\[(?=/?(?:{_BRACKETS})\])"
)
# Full-width and small forms as tokenizers with NFKC read them; one character each, so places stay.
_PLAIN = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    0xFE64: "<", 0xFE65: ">", 0xFE5D: "[", 0xFE5E: "]"
}  # fmt: skip


def neutral(text: str) -> str:
    """Remove invisible characters, and put a space in marks such as `<|im_start|>` and in their full-width forms."""
    plain = seen(text)
    as_read = plain if plain.isascii() else plain.translate(_PLAIN)
    parts, at = [], 0
    for mark in _MARKS.finditer(as_read):
        cut = mark.start() if mark.group() == "|>" else mark.end()
        parts += [plain[at:cut], " "]
        at = cut
    return "".join([*parts, plain[at:]])
