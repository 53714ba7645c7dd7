"""Find keys, tokens and passwords."""

from __future__ import annotations

from earmark.tasks.text.rules import DIGITS, Rule, Seen, words_of


def _mixed(seen: Seen) -> bool:
    """Return whether a word has letters and digits, like generated keys and unlike words."""
    return any(c.isdigit() for c in seen.value) and any(c.isalpha() for c in seen.value)


_SET = r"[\"']?\s?[:=]\s?[\"']?"
_NAMED = r"api[_ -]?key|secret[_ -]?key|access[_ -]?token|auth[_ -]?token|account[_ -]?key|secret[_ -]?access[_ -]?key"

KEYS: tuple[Rule, ...] = (
    Rule("private key", r"-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY", "PRIVATE KEY"),
    Rule("Hugging Face token", r"\bhf_[A-Za-z0-9]{30,}", "hf_"),
    Rule("OpenAI or Anthropic key", r"\bsk-[A-Za-z0-9_-]{20,}", "sk-", _mixed),
    Rule("AWS key", r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b", "AKIA|ASIA"),
    Rule("GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})", "gh[pousr]_|github_pat_"),
    Rule("GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,}", "glpat-"),
    Rule(
        "Google key",
        r"\b(?:AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})",
        r"AIza|ya29\.|GOCSPX-",
    ),
    Rule("Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}", "xox[abeoprs]-", _mixed),
    Rule("Stripe key", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{20,}", "k_live_|k_test_"),
    Rule("PyPI token", r"\bpypi-AgEI[A-Za-z0-9_-]{50,}", "pypi-"),
    Rule("npm token", r"(?:\b|_)npm_[A-Za-z0-9]{36,}", "npm_"),
    Rule("Twilio key", r"\b(?:AC|SK)[0-9a-f]{32}\b", "(?:AC|SK)[0-9a-f]{8}"),
    Rule("SendGrid key", r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}", r"SG\."),
    Rule(
        "Discord token",
        r"\b[MNO][A-Za-z0-9_-]{23,26}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,42}",
        r"[A-Za-z0-9_-]{8}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{8}",
        _mixed,
    ),
    Rule("Telegram token", r"\b[0-9]{8,10}:[A-Za-z0-9_-]{35}\b", "[0-9]{8}:[A-Za-z0-9_-]{8}", _mixed, marks=DIGITS),
    Rule("JSON web token", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", "eyJ"),
    Rule("password in a URL", r"\b[a-z][a-z0-9+.-]{1,12}://[^\s/:@\"']{1,64}:([^\s/:@\"']{3,})@", "://"),
    Rule(
        "password or key",
        rf"(?i)(?<![A-Za-z0-9])(?:{_NAMED}|password|passwd)\b{_SET}([A-Za-z0-9+/_.~=-]{{12,}})",
        f"(?i:{_NAMED}|passw)",
        _mixed,
        words=words_of(
            "api secret access auth account apikey secretkey accesstoken authtoken accountkey password passwd"
        ),
    ),
    Rule(
        "password or key",
        rf"\b[A-Z][A-Z0-9_]{{0,40}}_(?:KEY|TOKEN|SECRET|PASSWORD){_SET}([A-Za-z0-9+/_.~=-]{{16,}})",
        "_(?:KEY|TOKEN|SECRET|PASSWORD)",
        _mixed,
    ),
    Rule("bearer token", r"(?i)\bbearer ([A-Za-z0-9._~+/-]{20,})", "(?i:bearer )", _mixed, marks=("bearer ",)),
)
