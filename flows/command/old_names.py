"""Translate commands of release 1.0 to their names of today. Delete this module with the release after the next."""

from collections.abc import Sequence

from earmark.schemas.errors import ConfigError

MOVED = {
    "judge": ("eval", "run"),
    **{name: ("eval", name) for name in ("score", "qualify", "rollouts")},
    **{name: ("people", name) for name in ("study", "audit", "review")},
    **{name: ("inspect", name) for name in ("diff", "explain", "verify", "sql", "view")},
    "versions": ("list",),
    "schema": ("init",),
}
"""Old name → new words; options that moved are in `new_spelling`."""


def new_spelling(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with an old command in today's spelling, others as they are."""
    name, *rest = words
    if name not in MOVED or not rest:
        return [*MOVED.get(name, (name,)), *rest]
    new = MOVED[name]
    if name in ("judge", "score"):
        compared, rest = _take(rest, "--compare")
        templates, rest = _take(rest, "--template")
        scores, rest = _take(rest, "--scores", "--clip-scores")
        asked = any(word.split("=")[0] in ("-a", "--annotator", "-g", "--generations") for word in rest)
        modes = [bool(compared), bool(templates), "--rank" in rest, asked, *map(bool, scores)]
        if sum(modes) > 1:
            raise ConfigError(f"`earmark {name}` does one thing at a time; see `earmark eval --help`")
        if "--rank" in rest or (compared and name == "score"):
            new = "eval", "rank"
        elif compared or templates:
            new = "eval", "compare" if compared else "template"
        rest = [word for word in rest if word != "--rank"]
        rest += [*compared, *_each("--out", templates), *_each("--scores", scores)]
    elif name == "schema":
        rest += ["--schema"]
    elif name == "audit":
        rest = [f"--limit{word[6:]}" if word.split("=")[0] == "--rows" else word for word in rest]
    elif name == "diff":
        stores, rest = _take(rest, "--store")
        flags, plain = [word for word in rest if word[0] == "-"], [word for word in rest if word[0] != "-"]
        plain = [f"{plain[0]}@{version}" for version in plain[1:]] if len(plain) == 3 else plain
        rest = [*plain, *flags, *_each("--store", stores)]
    return [*new, *rest]


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _take(words: Sequence[str], *options: str) -> tuple[list[str], list[str]]:
    """Return the values of these options, and the other words."""
    values, others, each = list[str](), list[str](), iter(words)
    for word in each:
        option, equals, value = word.partition("=")
        if option in options:
            values.append(value if equals else next(each, ""))
        else:
            others.append(word)
    return values, others
