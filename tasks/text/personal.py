"""Find personal data and secrets in a text, by a list of rules for scrubbing and for the search before publishing.

Rules see a folded text (`fold`) and mark places in the original. Text found by a rule is hidden from later rules.
`hint` is a pattern for RE2 (in DuckDB, over whole columns) matching each text with findings, so that other texts never
enter Python. The aim is few false alarms, not a proof of absence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from earmark.tasks.text.addresses import HOSTS, IPS, LINKS, MAILS
from earmark.tasks.text.folding import Folded, disguises, fold
from earmark.tasks.text.keys import KEYS
from earmark.tasks.text.numbers import NUMBERS
from earmark.tasks.text.people import MENTIONS, NAMES, STREETS
from earmark.tasks.text.rules import FoldedText, Rule

ID = "id of a forum"
_IDS = (
    Rule(
        ID,
        r"(?i)\bt[1-6]_[a-z0-9]{3,12}\b",
        "(?i:t[1-6]_)",
        leaks=False,
        marks=tuple(f"t{kind}_" for kind in range(1, 7)),
    ),
)
RULES: tuple[Rule, ...] = (*KEYS, *LINKS, *MAILS, *IPS, *HOSTS, *MENTIONS, *_IDS, *NUMBERS, *STREETS, *NAMES)
LEAKS: tuple[Rule, ...] = tuple(rule for rule in RULES if rule.leaks)
_TAKEN = "\0"  # replaces found text; in no pattern


@dataclass(frozen=True, order=True)
class Place:
    """A personal or secret part of a text."""

    start: int  # its first character, in the original
    end: int  # the character after its last
    kind: str  # its kind of content


def find(text: str | Folded, rules: Sequence[Rule] = RULES) -> list[Place]:
    """Return the places of personal data and secrets in a text, in order and without overlap. Rules apply in their
    order."""
    folded = fold(text) if isinstance(text, str) else text
    view, left = FoldedText(folded.text), folded.text
    places = []
    for rule in rules:
        for start, end in list(rule.spans(left)) if rule.may(view) else ():
            places.append(Place(*folded.original(start, end), rule.kind))
            left = left[:start] + _TAKEN * (end - start) + left[end:]
    return sorted(places)


def hint(rules: Sequence[Rule] = RULES) -> str:
    """Return a pattern for RE2 and `re`, matching each text with findings by these rules."""
    return "|".join([*dict.fromkeys(rule.hint for rule in rules), f"[{disguises()}]"])


@dataclass(frozen=True)
class Scanner:
    """Scanner for texts unfit for publication; it ignores links and mentions, intended in cards and captions."""

    secrets: Mapping[str, str] = field(default_factory=dict)  # values secret here, by name

    @property
    def hint(self) -> str:
        """Return a pattern for RE2, matching all texts with findings."""
        return "|".join([hint(LEAKS), *(re.escape(value) for value in self.secrets.values())])

    def findings(self, text: str) -> Iterator[tuple[str, str]]:
        """Return kind and value of all parts of a text unfit for publication."""
        for name, secret in self.secrets.items():
            if secret in text:
                yield f"the value of {name}", secret
        for place in find(text, LEAKS):
            yield place.kind, text[place.start : place.end]


def own_secrets(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the secrets of this process's environment, of any form."""
    named = re.compile(r"(?:^|_)(?:(?:API)?KEY|AUTH_STRING|TOKEN|SECRET|PASSWORD)$")
    return {name: value for name, value in environment.items() if named.search(name) and len(value) >= 12}
