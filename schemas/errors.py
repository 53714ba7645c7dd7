"""Faults that a person can mend. Each is one line: what was expected, what was found, where, what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Self


class EarmarkError(Exception):
    """The base of every error that the command line prints as one line and answers with exit code 1."""


class ConfigError(EarmarkError):
    """A build config that cannot be used: an unknown key, a value out of range, a file that is not TOML."""


class InputError(EarmarkError):
    """An input that cannot be read at all. A single bad row is a reject, never this error."""


class Faults(EarmarkError):
    """All that is wrong with a config's inputs, as far as their first rows show, each in one line."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[str, ...]]]:
        return type(self), (self.lines,)


class TooManyRejects(EarmarkError):
    """A build that lost too much of its inputs to be committed. Its text has several lines; the first says it all."""


class StoreError(EarmarkError):
    """A store, version or row that is missing, damaged or in use."""


class HubError(EarmarkError):
    """A publication that the Hub or one of our own gates refused; what was uploaded before stays invisible there."""


class HubUnreachableError(HubError):
    """The Hub did not answer, or its client was told to stay offline; a dry run says what it can without it."""


def how_to_install(extra: str) -> str:
    """The way to get an optional extra."""
    if extra == "audio":  # audio-separator pins an older beartype than Prefect needs
        return "make setup-all in a clone, or README's two pip install lines: pip alone cannot resolve earmark[audio]"
    clone = Path(__file__).resolve().parents[1]
    if (clone / "pyproject.toml").is_file():
        return f"pip install -c constraints.txt -e '.[{extra}]' in {clone}"
    return f"pip install 'earmark[{extra}]'"


class MissingExtraError(EarmarkError):
    """A feature that needs an optional extra which is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the '{extra}' extra; install it with: {how_to_install(extra)}")
        self.missing = feature, extra

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), self.missing  # it may be raised on another machine


class DiskError(EarmarkError):
    """A file that the machine cannot read or write just now: its disk is full or read-only, or it is locked."""


class Interrupted(EarmarkError):
    """Work that was stopped and can be gone on with; `code` ends the command: 130 after Ctrl-C, 143 after SIGTERM."""

    def __init__(self, message: str, code: int = 130) -> None:
        super().__init__(message)
        self.code = code
