"""Define faults a person can mend, each in one line: expected, found, place, advice."""

from pathlib import Path
from typing import Self


class EarmarkError(Exception):
    """Base of every error printed by the command line in one line, with exit code 1."""


class ConfigError(EarmarkError):
    """Unusable build config: an unknown key, a value out of range, a file other than TOML."""


class InputError(EarmarkError):
    """Unreadable input. A single bad row is a reject, never this error."""

    path: str = ""  # of a file that is not there


class Faults(EarmarkError):
    """Faults of a config's inputs, as far as their first rows show them, each in one line."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[str, ...]]]:
        return type(self), (self.lines,)


class TooManyRejects(EarmarkError):
    """Build with too many rejects for a commit. Its text has several lines; the first is a summary."""


class StoreError(EarmarkError):
    """Missing, damaged or busy store, version or row."""


class HubError(EarmarkError):
    """Publication refused by the Hub or by Earmark's own gates; earlier uploads stay invisible there."""


class HubUnreachableError(HubError):
    """Hub without an answer, or with its client offline; a dry run reports as much as possible without it."""


NO_RESOLVER = "audio-separator pins beartype below 0.19, Prefect needs 0.20, and no resolver settles that by itself"


def how_to_install(extra: str) -> str:
    """Return the command for an optional extra; for `separation` and `audio`, also the reason against plain pip."""
    clone = Path(__file__).resolve().parents[1]
    cloned = (clone / "pyproject.toml").is_file()
    if extra in ("separation", "audio"):
        way = f"make setup-all in {clone}" if cloned else "the two pip lines under Install in Earmark's README"
        return f"{way} ({NO_RESOLVER})"
    if cloned:
        return f"pip install -c constraints.txt -e '.[{extra}]' in {clone}"
    return f"pip install 'earmark[{extra}]'"


class MissingExtraError(EarmarkError):
    """Feature without its optional extra installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the '{extra}' extra; install it with: {how_to_install(extra)}")
        self.missing = feature, extra

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), self.missing  # it may be raised on another machine


class DiskError(EarmarkError):
    """File the machine cannot read or write now: its disk is full or read-only, or it is locked."""


class Interrupted(EarmarkError):
    """Stopped but resumable work; `code` is the exit code: 130 after Ctrl-C, 143 after SIGTERM."""

    def __init__(self, message: str, code: int = 130) -> None:
        super().__init__(message)
        self.code = code


def model_fault(error: Exception) -> str:
    """Return the reason a model's files could not be loaded, in one line."""
    if type(error).__name__ == "UnpicklingError":  # torch's own message tells how to run the code in the pickle
        return "its weights are a pickle of more than tensors, which is never loaded; convert them to safetensors"
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
