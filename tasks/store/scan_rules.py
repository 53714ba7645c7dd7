"""What secrets and personal data look like: a few shapes with few false alarms. Not a proof that there are none.

`HINT` is what RE2 looks for (in DuckDB, over whole columns): small, so that its automaton is. Python's `re` then reads
the rules' patterns in the few texts that it found. A scanner by entropy (detect-secrets 1.5) takes each SHA-256 for a
secret, and reads 1,700 lines a second.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

_START, _END = r"(?:^|[^A-Za-z0-9_+/=.-])", r"(?:$|[^A-Za-z0-9_])"


def _mixed(text: str) -> bool:
    """Whether a word has letters and digits, as made-up keys have and words do not."""
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def _personal_mail(text: str) -> bool:
    name, _, host = text.rpartition("@")
    reserved = re.search(r"(?:^|\.)(?:example|test|invalid|localhost)(?:\.(?:com|org|net))?$", host.lower())
    picture = host.lower().rpartition(".")[2] in ("png", "jpg", "jpeg", "gif", "webp", "svg", "wav", "mp3", "flac")
    return not reserved and not picture and name.lower() not in ("git", "noreply", "no-reply")


def _dialled(text: str) -> bool:
    """Whether a number could be dialled: 8 to 15 digits, and no decimal fraction."""
    digits = re.sub(r"\D", "", text)
    return 8 <= len(digits) <= 15 and text.count(".") != 1


def _public_address(text: str) -> bool:
    """Whether an address is somebody's. Four small numbers are a version such as 4.1.2.0."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if address.version == 4 and max(address.packed) < 32:
        return False
    return address.is_global and not address.is_multicast


@dataclass(frozen=True)
class Rule:
    """A shape that may not be published.

    Attributes:
        kind: what it is called in a finding.
        pattern: its group, if it has one, is the value. Wherever it matches, `HINT` must match.
        holds: decides about a value that the pattern found.
    """

    kind: str
    pattern: str
    holds: Callable[[str], bool] = field(default=lambda value: True)

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)


RULES: tuple[Rule, ...] = (
    Rule("private key", r"-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY"),
    Rule("Hugging Face token", r"\bhf_[A-Za-z0-9]{30,}"),
    Rule("OpenAI or Anthropic key", r"\bsk-[A-Za-z0-9_-]{20,}", _mixed),
    Rule("AWS key", r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b"),
    Rule("GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})"),
    Rule("GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    Rule("Google key", r"\b(?:AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})"),
    Rule("Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}", _mixed),
    Rule("Stripe key", r"\b[rs]k_live_[A-Za-z0-9]{20,}"),
    Rule("PyPI token", r"\bpypi-AgEI[A-Za-z0-9_-]{50,}"),
    Rule("JSON web token", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    Rule("password in a URL", r"\b[a-z][a-z0-9+.-]{1,12}://[^\s/:@\"']{1,64}:([^\s/:@\"']{3,})@"),
    Rule(
        "password or key",
        r"(?i)\b(?:api[_-]?key|secret[_-]?key|access[_-]?token|password|passwd)\b[\"']?\s?[:=]\s?[\"']?"
        r"([A-Za-z0-9+/_.~-]{12,})",
        _mixed,
    ),
    Rule("bearer token", r"(?i)\bbearer ([A-Za-z0-9._~+/-]{20,})", _mixed),
    Rule("e-mail address", r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}", _personal_mail),
    Rule("phone number", rf"{_START}(\+[1-9](?:[ ()-]{{0,2}}\d)(?:[ .()-]{{0,2}}\d){{6,13}}){_END}", _dialled),
    Rule("phone number", r"(?:^|[\s:;,])((?:\(\d{3}\) ?|\d{3}-)\d{3}-\d{4})(?:$|[\s;,.)])"),
    Rule("IP address", rf"{_START}((?:\d{{1,3}}\.){{3}}\d{{1,3}})(?:$|[^A-Za-z0-9_.-]|\.(?:$|\s))", _public_address),
    Rule(
        "IP address", r"(?:^|[^A-Za-z0-9:.])([0-9A-Fa-f]{1,4}:[0-9A-Fa-f:]{9,35})(?:$|[^A-Za-z0-9:])", _public_address
    ),
)

HINT = (
    r"@|hf_|sk-|AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|AIza|ya29\.|GOCSPX-|xox[abeoprs]-|k_live_|pypi-|eyJ|://"
    r"|PRIVATE KEY|(?i:passw|api.?key|secret.?key|access.?token|bearer )|\+[1-9][0-9 ()-][0-9 .()-]"
    r"|[0-9][0-9][0-9]-[0-9][0-9][0-9][0-9]|[0-9]\.[0-9]+\.[0-9]|[0-9A-Fa-f]:[0-9A-Fa-f:]+:"
)


@dataclass(frozen=True)
class Scanner:
    """Finds what may not be published in texts.

    Attributes:
        secrets: values that are secret here, by what they are called.
    """

    secrets: Mapping[str, str] = field(default_factory=dict)

    @property
    def hint(self) -> str:
        """A pattern for RE2 that matches wherever something may be found."""
        return "|".join([HINT, *(re.escape(value) for value in self.secrets.values())])

    def findings(self, text: str) -> Iterator[tuple[str, str]]:
        """Kind and value of everything in a text that may not be published."""
        for name, secret in self.secrets.items():
            if secret in text:
                yield f"the value of {name}", secret
        for rule in RULES:
            for match in rule.compiled.finditer(text):
                value = match[match.lastindex or 0]
                if rule.holds(value):
                    yield rule.kind, value


def own_secrets(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The secrets of this process's environment, whatever their form."""
    named = re.compile(r"(?:^|_)(?:(?:API)?KEY|AUTH_STRING|TOKEN|SECRET|PASSWORD)$")
    return {name: value for name, value in environment.items() if named.search(name) and len(value) >= 12}
