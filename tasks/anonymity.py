"""What keeps people out of the dataset: salted hashes for their ids, and texts without names, links and addresses."""

from __future__ import annotations

import hashlib
import html
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from schemas.errors import ConfigError
from schemas.files import keep_private

SALT_FILE = "salt"  # in the store's own folder, never in a version
SHORTEST_SALT = 16  # characters; ids are short, so that a guessable salt would give them away
USER, LINK, EMAIL, ID = "[user]", "[link]", "[email]", "[id]"
NOBODY = frozenset({"", "[deleted]", "[removed]", "automoderator"})

_HIDDEN = re.compile("[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")  # splits words unseen
_ESCAPE = re.compile(r"\\([_*~.#@-])")  # Markdown's: `some\_name`
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_LINE_END = re.compile(r"[ \t]+\n")
_EMAIL = re.compile(r"[\w.+-]{1,64}\s?(?:@|\[at\]|\(at\))\s?[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}", re.IGNORECASE)
_IMAGE_LINK = re.compile(r"!\[[^\]\n]{0,200}\]\([^)\s]{0,2000}[^)]{0,200}\)")
_MARKDOWN_LINK = re.compile(r"\[([^\]\n]{0,500})\]\([^)\s]{1,2000}[^)]{0,200}\)")
_REFERENCE = re.compile(r"^[ \t]{0,3}\[[^\]\n]{1,200}\]:[ \t]*\S+.*$", re.MULTILINE)
_URL = re.compile(r"(?:\b[a-z][a-z0-9+.-]{1,15}://|\bwww\.|\bmailto:)[^\s<>\"]+", re.IGNORECASE)
_HOST = re.compile(
    r"(?<![\w@.])(?:[a-z0-9-]{1,63}\.){1,4}(?:com|org|net|edu|gov|io|it|be|gg|me|tv|co|uk|de|fr|ru|app|dev|info|ly)\b"
    r"(?:[/?#:][^\s<>\"]*)?",
    re.IGNORECASE,
)
_MENTION = re.compile(r"(?<![\w/])/?(?:u|user)/[\w-]{1,64}|(?<![\w/])/?r/u_[\w-]{1,64}", re.IGNORECASE)
_HANDLE = re.compile(r"(?<![\w@])@[A-Za-z0-9_][\w.-]{1,63}|\b\w{2,32}#\d{4}\b")
_FULL_NAME = re.compile(r"\bt[1-6]_[a-z0-9]{3,12}\b", re.IGNORECASE)

# What is looked for, in this order: marks of which a text must have one, the pattern, what is left in its place.
_STEPS: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (("\\",), _ESCAPE, r"\1"),
    (("![",), _IMAGE_LINK, LINK),
    (("](",), _MARKDOWN_LINK, r"\1"),
    (("]:",), _REFERENCE, LINK),
    (("@", "[at]", "(at)", "[AT]", "(AT)", "[At]", "(At)"), _EMAIL, EMAIL),
    (("://", "www.", "WWW.", "Www.", "mailto:", "MAILTO:", "Mailto:"), _URL, LINK),
    ((".",), _HOST, LINK),
    (("/",), _MENTION, USER),
    (("@", "#"), _HANDLE, USER),
    (("_",), _FULL_NAME, ID),
)


def salt_of(variable: str, store: Path, environment: Mapping[str, str] = os.environ) -> str:
    """The salt of ids: the environment's, else one that the store has kept since it first needed one.

    Without it nobody can tell whether a known id is in the dataset. It is in no version, manifest or log.

    Args:
        variable: name of the environment variable.
        store: the store's folder.
        environment: where the variable is looked up.

    Raises:
        ConfigError: the salt in the environment is too short to keep anything secret.
    """
    if given := environment.get(variable):
        if len(given) < SHORTEST_SALT:
            raise ConfigError(
                f"{variable}: expected a salt of at least {SHORTEST_SALT} characters, found {len(given)}; "
                "make one with: openssl rand -hex 32"
            )
        return given
    kept = store / SALT_FILE
    keep_private(kept, secrets.token_hex(32) + "\n")
    return kept.read_text("utf-8").strip()


def salt_digest(salt: str) -> str:
    """What a build key may know of a salt: enough to notice another one, of no use to guess it."""
    return hashlib.scrypt(salt.encode(), salt=b"earmark build key", n=1 << 14, r=8, p=1, dklen=8).hex()


def key_of(salt: str, kind: str, value: str) -> str:
    """A salted hash of an id or a name: sixteen hexadecimal digits.

    Args:
        salt: what `salt_of` gave.
        kind: `thread`, `comment` or `author`, so that equal ids of two kinds have two keys.
        value: the id or the name.
    """
    return hashlib.sha256(f"{salt}\0{kind}\0{value}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def annotator_key(salt: str, source: str, who: str) -> str:
    """The key of a person as an export of votes names them; the same name in two sources is two people."""
    return key_of(salt, "annotator", f"{source}\0{who}")


def scrub(text: str, names: Iterable[str] = ()) -> str:
    """A text without what leads to a person: names, ids, mentions, links and e-mail addresses.

    The words of a link stay, its target goes. Entities are resolved first and invisible characters dropped, so that
    neither hides anything. Known names go wherever they stand as a whole word, whatever else they may mean.

    Args:
        text: as the dump has it.
        names: names of the people in the thread, and ids of its parts.
    """
    return scrub_all([text], names)[0]


def scrub_all(texts: Sequence[str], names: Iterable[str] = ()) -> list[str]:
    """Several texts as by `scrub`; names are looked for in all of them together first, since most stand in none."""
    bare = [_without_marks(text) for text in texts]
    if known := _names("\n".join(bare), names):
        bare = [known.sub(USER, text) for text in bare]
    return [_LINE_END.sub("\n", text).strip() for text in bare]


def _without_marks(text: str) -> str:
    if "&" in text:
        text = html.unescape(html.unescape(text))
    if not text.isascii():
        text = _HIDDEN.sub("", text)
    text = _CONTROL.sub(" ", text.replace("\r\n", "\n"))
    for marks, pattern, left in _STEPS:  # most texts have few of the marks, and a look for one costs little
        for mark in marks:
            if mark in text:
                text = pattern.sub(left, text)
                break
    return text


def _names(text: str, names: Iterable[str]) -> re.Pattern[str] | None:
    """What finds those names that may stand in a text."""
    lower = text.lower()
    known = sorted({name for name in names if name.lower() in lower}, key=lambda name: (-len(name), name))
    if not known:
        return None
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(map(re.escape, known))})(?![^\W_])", re.IGNORECASE)
