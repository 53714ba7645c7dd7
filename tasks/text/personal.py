"""Personal data and secrets in a text: one list of rules, which scrubbing and the search before publishing share.

Rules see a text as it looks (`fold`) and name places in the original. What a rule took is hidden from those behind it.
`hint` is a pattern for RE2 (in DuckDB, over whole columns) that matches each text in which something is found, so that
all others never enter Python. Few false alarms are meant, not a proof that nothing is left.
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
from earmark.tasks.text.rules import Rule, View

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
_TAKEN = "\0"  # stands where a rule found something; no pattern has it


@dataclass(frozen=True, order=True)
class Place:
    """Something personal or secret in a text."""

    start: int  # its first character, in the original
    end: int  # the one behind its last
    kind: str  # what it looks like


def find(text: str | Folded, rules: Sequence[Rule] = RULES) -> list[Place]:
    """Where a text holds what leads to a person or opens a door, first to last; no two places overlap.

    Rules take their share in their order.
    """
    folded = fold(text) if isinstance(text, str) else text
    view, left = View(folded.text), folded.text
    places = []
    for rule in rules:
        for start, end in list(rule.spans(left)) if rule.may(view) else ():
            places.append(Place(*folded.original(start, end), rule.kind))
            left = left[:start] + _TAKEN * (end - start) + left[end:]
    return sorted(places)


def hint(rules: Sequence[Rule] = RULES) -> str:
    """A pattern, for RE2 and `re`, that matches each text in which `find` finds something by these rules."""
    return "|".join([*dict.fromkeys(rule.hint for rule in rules), f"[{disguises()}]"])


@dataclass(frozen=True)
class Scanner:
    """Finds what may not be published in texts: all but links and mentions, which cards and captions mean to have."""

    secrets: Mapping[str, str] = field(default_factory=dict)  # values that are secret here, by what they are called

    @property
    def hint(self) -> str:
        """A pattern for RE2 that matches wherever something may be found."""
        return "|".join([hint(LEAKS), *(re.escape(value) for value in self.secrets.values())])

    def findings(self, text: str) -> Iterator[tuple[str, str]]:
        """Kind and value of everything in a text that may not be published."""
        for name, secret in self.secrets.items():
            if secret in text:
                yield f"the value of {name}", secret
        for place in find(text, LEAKS):
            yield place.kind, text[place.start : place.end]


def own_secrets(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The secrets of this process's environment, whatever their form."""
    named = re.compile(r"(?:^|_)(?:(?:API)?KEY|AUTH_STRING|TOKEN|SECRET|PASSWORD)$")
    return {name: value for name, value in environment.items() if named.search(name) and len(value) >= 12}
