"""Remove people from the dataset: salted hashes for their ids, and texts without names, links and addresses."""

import hashlib
import html
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from earmark.schemas.errors import ConfigError
from earmark.schemas.files import keep_private
from earmark.tasks.text.addresses import EMAIL, LINK
from earmark.tasks.text.people import HANDLE
from earmark.tasks.text.personal import HIDDEN, ID, RULES, find, fold
from earmark.tasks.text.personal import hint as rules_hint
from earmark.tasks.text.rules import Rule

SALT = "EARMARK_SALT"  # environment variable
SALT_FILE = "salt"  # in the store's own folder, never in a version
SHORTEST_SALT = 16  # characters; ids are short, so a guessable salt would disclose them
NOBODY = frozenset({"", "[deleted]", "[removed]", "automoderator"})
USER, LEFT_LINK = "[user]", "[link]"
LEFT = {HANDLE: USER, LINK: LEFT_LINK, EMAIL: "[email]", ID: "[id]"}  # other kinds become `[kind]`

_HIDDEN = re.compile(f"[{HIDDEN}]")  # invisible characters, used to split words
_ESCAPE = re.compile(r"\\([_*~.#@-])")  # Markdown's: `some\_name`
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_LINE_END = re.compile(r"[ \t]+\n")
_IMAGE_LINK = re.compile(r"!\[[^\]\n]{0,200}\]\([^)\s]{0,2000}[^)]{0,200}\)")
_MARKDOWN_LINK = re.compile(r"\[([^\]\n]{0,500})\]\([^)\s]{1,2000}[^)]{0,200}\)")
_REFERENCE = re.compile(r"^[ \t]{0,3}\[[^\]\n]{1,200}\]:[ \t]*\S+.*$", re.MULTILINE)
# A mark required for any change, the pattern, and its replacement; applied in this order.
_MARKDOWN = (
    ("\\", _ESCAPE, r"\1"),
    ("![", _IMAGE_LINK, LEFT_LINK),
    ("](", _MARKDOWN_LINK, r"\1"),
    ("]:", _REFERENCE, LEFT_LINK),
)


def salt_of(variable: str, store: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Return the salt of ids: the environment's, else the store's, created at first use.

    Without it nobody can check whether a known id is in the dataset. It is in no version, manifest or log.

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
    """Return a digest of a salt for build keys: it reveals a change, but is of no use to guess the salt."""
    return hashlib.scrypt(salt.encode(), salt=b"earmark build key", n=1 << 14, r=8, p=1, dklen=8).hex()


def key_of(salt: str, kind: str, value: str) -> str:
    """Return a salted hash of an id or name: sixteen hexadecimal digits. `kind` (`thread`, `comment`, `author`)
    separates equal ids of two kinds."""
    return hashlib.sha256(f"{salt}\0{kind}\0{value}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def annotator_key(salt: str, source: str, who: str) -> str:
    """Return the key of a person in an export of votes; the same name in two sources gives two keys."""
    return key_of(salt, "annotator", f"{source}\0{who}")


def hint() -> str:
    """Return a pattern for RE2 and `re`, matching every text changed by `scrub` without known names."""
    controls = "\\x00-\\x08\\x0b-\\x1f\x7f-\x9f"
    return rf"&[A-Za-z#]|[{controls}{HIDDEN}]|\\[_*~.#@-]|\]\(|\]:|[ \t]\n|^\s|\s$|{rules_hint()}"


def scrub(text: str, names: Iterable[str] = ()) -> str:
    """Return a text without traces of a person: names, ids, mentions, links, addresses and numbers (`tasks/text`).

    The words of a link stay, its target is removed. Entities are resolved first and invisible characters dropped, so
    that neither hides anything. Known names are removed as whole words, even with other meanings.
    """
    bare = _without_marks(text)
    folded = fold(bare)
    parts, at = list[str](), 0
    for place in find(folded, (*RULES, *_names(folded.text, names))):
        parts += (bare[at : place.start], LEFT.get(place.kind, f"[{place.kind}]"))
        at = place.end
    return _LINE_END.sub("\n", "".join([*parts, bare[at:]])).strip()


def _without_marks(text: str) -> str:
    """Return a text without entities, invisible characters, controls and Markdown that may hide an address."""
    if "&" in text:
        text = html.unescape(html.unescape(text))
    if not text.isascii():
        text = _HIDDEN.sub("", text)
    text = _CONTROL.sub(" ", text.replace("\r\n", "\n"))
    for mark, pattern, left in _MARKDOWN:
        if mark in text:
            text = pattern.sub(left, text)
    return text


def _names(text: str, names: Iterable[str]) -> tuple[Rule, ...]:
    """Return a rule for the known names present in a folded text, or none."""
    lower = text.lower()
    looks = {fold(name).text for name in names}
    known = sorted({name for name in looks if name and name.lower() in lower}, key=lambda name: (-len(name), name))
    if not known:
        return ()
    pattern = rf"(?i)(?<![^\W_])(?:{'|'.join(map(re.escape, known))})(?![^\W_])"
    return (Rule(HANDLE, pattern, pattern),)
