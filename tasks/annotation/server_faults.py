"""Type a server's refusal by a table of known forms; the tests hold a recorded body of each.

Other forms are typed by status; `tasks/annotation/patience.py` finds faults common to every request by behaviour.
Pure functions; nothing is asked.
"""

import email.utils
import json
import math
import re
import time
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from earmark.tasks.annotation import errors
from earmark.tasks.annotation.errors import (
    AskError,
    AuthFailed,
    BadRequest,
    ModelMissing,
    QuotaExhausted,
    RateLimited,
    ServerError,
    StopRun,
    Unavailable,
    Unsupported,
    one_line,
)

LONGEST_WAIT_S = 3600.0  # longest accepted wait, in seconds: after it the server is asked again
CUT = (408, 504, 524)  # statuses of a gateway, or Cloudflare, that gave up waiting for the server
LOOKED_AT = 600  # number of characters of a message searched for forms: the rest may repeat a request
ECHO = re.compile(r"input_value|'input':|\"input\":|Failed to parse", re.IGNORECASE)
"""Start of a repeated request in a message; its words decide nothing."""
QUOTA = re.compile(r"quotaId\W{1,12}([\w-]{1,120})")  # Google's, also in a gateway's quote with escaped quotation marks
DELAY = re.compile(r"retryDelay\W{1,12}([0-9.]+)s")
ANSWERS = ('"choices"', '"candidates"')
OF_ACCOUNT = re.compile(  # beside a form's words, which alone may stand in a caption: "a daily walk to the limit"
    r"\b(?:account|api|balance|billing|credits|exceeded|expired|insufficient|plan|quota|reached|requests|subscription)\b|"
    r"余额|额度|令牌|上限",
    re.IGNORECASE,
)
OF_SOUND = re.compile(  # no server tells of them; a critique does: "not enough balance between vocals and drums"
    r"\b(?:mix(?:es|ed|ing)?|music|songs?|sing(?:s|er|ers|ing)?|sung|vocals?|voices?|drums?|snare|bass|guitars?|piano|"
    r"strings|synths?|choir|melod(?:y|ies|ic)|harmon(?:y|ies|ic)|rhythms?|instruments?|instrumental|radio|jingle|loud|"
    r"louder|clipping|clips?|sounds|recordings?|says|spoken|speech)\b|音乐|音量|人声|歌|曲|鼓|乐器|旋律|节奏",
    re.IGNORECASE,
)
TITLE = re.compile(r"<title[^>]*>(.*?)</title>|<h1[^>]*>(.*?)</h1>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """Error body in terms shared by all servers."""

    status: int
    words: str  # codes, types, reasons and ids of quotas, in lower case, each on a line
    message: str  # the sentence for people, in one line

    @property
    def shown(self) -> str:
        """Return status and sentence."""
        return f"{self.status}: {self.message}" if self.message else str(self.status)


@dataclass(frozen=True, slots=True)
class KnownForm:
    """Known form: `pattern` in the words or the message of an error with a status in `statuses`."""

    fault: type[AskError]
    pattern: re.Pattern[str]
    statuses: range


class FaultRow(TypedDict):
    """Row of `server_faults.toml`."""

    fault: str  # a class of `errors.py`
    patterns: str  # a line each
    # of forms: from, and before; without it 400 to 499, to 599 if they stop a run
    statuses: NotRequired[tuple[int, int]]
    says: NotRequired[str]  # of ends: the cause, with advice


def pattern_of(row: FaultRow) -> re.Pattern[str]:
    """Return the pattern of a row: any of its lines."""
    return re.compile("|".join(row["patterns"].splitlines()), re.IGNORECASE)


TABLE: dict[str, list[FaultRow]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
FORMS = tuple(
    KnownForm(fault, pattern_of(one), range(*one.get("statuses", (400, 600 if issubclass(fault, StopRun) else 500))))
    for one in TABLE["forms"]
    for fault in [getattr(errors, one["fault"])]
)
"""The first matching form decides."""
ADVICE: dict[type[AskError], str] = {
    QuotaExhausted: "add money or quota, change the account, or wait for the quota's next day, then run again",
    ModelMissing: "check annotator and base_url",
    Unsupported: "change the annotator's options (temperature, extra_body, structured, max_tokens_field) or its model",
}


def said_in(status: int, text: str) -> ErrorBody:
    """Parse an error body of OpenAI, vLLM, Google, LiteLLM, llama.cpp or Ollama, or a gateway's page."""
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        title = TITLE.search(text[:10_000])
        return ErrorBody(status, "", one_line((title[1] or title[2]) if title else text))
    if isinstance(held, list) and held:
        held = held[0]
    held = _renamed(held) if isinstance(held, dict) else held
    error = held.get("error", held.get("detail", held)) if isinstance(held, dict) else held
    quotas = "\n".join(("", *QUOTA.findall(text))) if status in (429, 430) or status >= 500 else ""
    if isinstance(error, str) and isinstance(held, dict):
        return ErrorBody(status, _words(held) + quotas, one_line(error))
    if not isinstance(error, dict):
        return ErrorBody(status, "", one_line(str(error)))
    message = next(filter(None, map(error.get, ("message", "msg", "detail"))), held.get("message") or "")
    return ErrorBody(status, _words(error) + quotas, one_line(str(message), LOOKED_AT))


def _renamed(held: dict[str, Any]) -> dict[str, Any]:
    """Return the error body of MiniMax or Baidu by the common names; any other body as it is."""
    inner = held.get("base_resp")
    code, message = (inner.get("status_code"), inner.get("status_msg")) if isinstance(inner, dict) else (None, None)
    code, message = code or held.get("error_code"), message or held.get("error_msg")
    return {"code": code, "message": message} if code and isinstance(message, str) else held


def _words(error: Mapping[str, Any]) -> str:
    """Return an error's words for programs: codes, types, reasons, and a gateway's quote of its upstream."""
    found = [str(error[name]) for name in ("code", "type", "status", "reason", "title") if error.get(name) is not None]
    for name in ("innererror", "metadata"):
        inner = error.get(name)
        if isinstance(inner, dict):
            found += [str(value) for key, value in inner.items() if key in ("code", "error_type", "raw", "reasons")]
    details = error.get("details")
    found += [
        str(one.get("reason", "")) for one in (details if isinstance(details, list) else ()) if isinstance(one, dict)
    ]
    return "\n".join(word[:LOOKED_AT] for word in found)


def form_of(said: ErrorBody) -> type[AskError] | None:
    """Return the fault of the first matching form."""
    text = f"{said.words}\n{ECHO.split(said.message, maxsplit=1)[0]}"
    return next((form.fault for form in FORMS if said.status in form.statuses and form.pattern.search(text)), None)


def ends_runs(text: str) -> bool:
    """Return whether a text in the place of an answer tells of a spent quota or a refused key."""
    if not OF_ACCOUNT.search(text) or OF_SOUND.search(text):
        return False
    return form_of(ErrorBody(429, "", text)) in (QuotaExhausted, AuthFailed)


def fault_of(status: int, text: str, headers: Mapping[str, str], *, where: str, advice: str = "") -> AskError:
    """Return the typed fault of an error.

    Args:
        status: HTTP status, 400 or more; a gateway's own code if the status was a success.
        text: the body, without secrets.
        headers: may give a wait.
        where: the address without secrets, for faults about it.
        advice: about the key.
    """
    said = said_in(status, text)
    fault = form_of(said) or _by_status(status)
    if fault is AuthFailed:
        return AuthFailed(f"{where} answers {said.shown}; {advice}")
    if fault in ADVICE:
        return fault(f"{where} answers {said.shown}; {ADVICE[fault]}")
    if issubclass(fault, RateLimited | ServerError):
        error = fault(said.shown, retry_after_s=wait_s(status, headers, text), raw=text)
        error.cut = status in CUT
        return error
    return fault(said.shown)


def status_within(text: str) -> int | None:
    """Return the status of an error sent as a success: its own code, that of its known form, or 500; else None.

    Of a body that may be something else than an error, such as a scorer's, only the words for a run's end count.
    """
    answers = any(name in text for name in ANSWERS) and not text.lstrip()[:12].replace(" ", "").startswith('{"error"')
    if answers and '"error"' not in text and '"base_resp"' not in text:
        return None  # an answer, which is parsed once
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(held, dict) or (answers and (held.get("choices") or held.get("candidates"))):
        return None
    held = _renamed(held)
    error, doubtful = held.get("error"), answers
    if not error or type(error) in (int, float):  # a scorer's figures have any names
        code, says = held.get("code"), held.get("message") or held.get("msg")
        coded = isinstance(says, str) and code and str(code) != "200"
        doubtful = answers or (held.get("object") != "error" and not coded)
        if doubtful and not _speaks(held):
            return None
        error = held
    own = str((error if isinstance(error, dict) else held).get("code"))
    fault = form_of(said_in(429, text))  # every form but some of `Unsupported` has this status
    if own in map(str, range(400, 600)):
        status = int(own)
    else:
        status = next((one for one in (401, 402, 404, 429) if _by_status(one) is fault), 400) if fault else 500
    return None if doubtful and not issubclass(fault or _by_status(status), StopRun) else status


def _speaks(held: Mapping[str, Any]) -> bool:
    """Return whether a body holds a sentence, and no figure beside a code."""
    figures = [name for name, value in held.items() if type(value) in (int, float) and name not in ("code", "status")]
    return not figures and (
        isinstance(held.get("detail"), str | dict)
        or any(isinstance(held.get(name), str) for name in ("message", "msg"))
    )


def _by_status(status: int) -> type[AskError]:
    if status in (408, 409, 425, 429):
        return RateLimited
    if status >= 500:
        return Unavailable if status in (502, 503, 529) else ServerError
    return {401: AuthFailed, 403: AuthFailed, 402: QuotaExhausted, 404: ModelMissing}.get(status, BadRequest)


# -- how long to wait -----------------------------------------------------------------------------------------


def wait_s(status: int, headers: Mapping[str, str], text: str) -> float | None:
    """Return the wait of a refusal in seconds, from its headers or Google's details (`"retryDelay": "12s"`)."""
    if (wait := retry_after(headers)) is not None or status != 429:
        return wait
    if found := DELAY.search(text):
        return _believable(found[1])
    return _reset_after(headers)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `retry-after-ms` or `Retry-After` (also a date), with or without `llm_provider-`."""
    for prefix in ("", "llm_provider-"):
        milliseconds, said = headers.get(f"{prefix}retry-after-ms"), headers.get(f"{prefix}retry-after")
        if milliseconds and (wait := _believable(milliseconds, 1000)) is not None:
            return wait
        if said and (wait := _believable(said)) is not None:
            return wait
        if said:
            with suppress(ValueError, OverflowError):
                return _believable(email.utils.parsedate_to_datetime(said).timestamp() - _now(headers))
    return None


def _now(headers: Mapping[str, str]) -> float:
    """Return the server's time by its own clock, in seconds since 1970; ours without it."""
    with suppress(ValueError, OverflowError):
        return email.utils.parsedate_to_datetime(headers.get("date") or "").timestamp()
    return time.time()


def _reset_after(headers: Mapping[str, str]) -> float | None:
    """Return the longest wait in seconds of `x-ratelimit-reset-*` for exhausted rates: `1m2.5s` (OpenAI, Groq), a date
    (Anthropic) or milliseconds since 1970 (OpenRouter)."""
    waits: list[float] = []
    lowered = {name.lower(): value for name, value in headers.items()}
    for name, value in lowered.items():  # with or without a gateway's `llm_provider-`
        if "ratelimit" not in name or "reset" not in name:
            continue
        remaining = lowered.get(name.replace("reset", "remaining"), "0")
        if remaining.strip() in ("", "0") and (wait := _until(value, _now(lowered))) is not None:
            waits.append(wait)
    return max(waits, default=None)


def _until(value: str, now: float) -> float | None:
    parts = re.findall(r"([0-9.]+)(ms|s|m|h|d)", value)
    if parts and "".join(map("".join, parts)) == value.strip():
        unit_s = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
        with suppress(ValueError):
            return _believable(math.fsum(float(number) * unit_s[unit] for number, unit in parts))
        return None
    with suppress(ValueError):
        number = float(value)
        since_1970 = number / 1000 if number > 1e11 else number
        return _believable(since_1970 - now if since_1970 > 1e9 else number)
    with suppress(ValueError, OverflowError):
        return _believable(datetime.fromisoformat(value).timestamp() - now)
    return None


def _believable(seconds: float | str, parts: int = 1) -> float | None:
    with suppress(ValueError):
        number = float(seconds) / parts
        return min(max(0.0, number), LONGEST_WAIT_S) if math.isfinite(number) else None
    return None
