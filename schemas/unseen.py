"""Characters that nobody sees: they hide text from a reader, turn its direction, or steer a terminal."""

import re

UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ue000-\uf8ff\ufff9-\ufffb\U000f0000-\U0010ffff"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""The inside of a character class: controls but tab and line feed, halves of surrogate pairs, private use, and what
Unicode's property Default_Ignorable_Code_Point has, but for variation selectors of the first sixteen."""
# One selector after a character that has two forms chooses between text and emoji; others carry hidden bytes.
_GONE = re.compile(f"[{UNSEEN}\ufe00-\ufe0d]|(?<![0-9#*\u00a9-\ufdff\ufe10-\U000dffff])[\ufe0e\ufe0f]")


def seen(text: str) -> str:
    """Return a text without characters that nobody sees; line ends become line feeds."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return plain if plain.isascii() and plain.isprintable() else _GONE.sub("", plain)


def on_terminal(text: str, kept: str = "\n\t") -> str:
    """Return a text whose characters a terminal shows and does not obey, but for `kept` ones."""
    return "".join(one if one.isprintable() or one in kept else "\ufffd" for one in text)


def printable(text: str) -> str:
    """Return a text on one line of characters that a terminal shows and does not obey."""
    return on_terminal(text, "")
