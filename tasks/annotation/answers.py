"""Turn a model's reply into an answer in the requested form, or into a typed fault. Pure functions; nothing is asked.

Raise `PARSER` with every change of their results: finished requests are then read again from their raw responses,
without asking.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from earmark.schemas.questions import Ask, Choice, FreeText, Json, ScaleRating, YesNo, YesNoValue
from earmark.tasks.annotation.errors import (
    BadAnswer,
    BrokenOff,
    Empty,
    LowShare,
    Refused,
    ServerSpoke,
    Truncated,
    one_line,
)
from earmark.tasks.annotation.json_answers import json_value, unfit
from earmark.tasks.annotation.server_faults import ends_runs

_NOTES = "reasoning|analysis|reflection|scratchpad"  # before an answer or after it
_NOTE = re.compile(f"<(?:{_NOTES})>", re.IGNORECASE)
_THOUGHTS = f"(?:think|thinking|thought|seed:think|{_NOTES})"
_BEGINS = rf"<{_THOUGHTS}>|◁think▷|\[THINK\]|<\|begin_of_thought\|>|<unused94>"
_ENDS = rf"</{_THOUGHTS}>|◁/think▷|\[/THINK\]|<\|end_of_thought\|>|<unused95>"
BEGINS = re.compile(rf"{_BEGINS}|<\|channel\|>(?!final)", re.IGNORECASE)
ENDS = re.compile(rf"{_ENDS}|<\|channel\|>final<\|message\|>|\A\s*analysis.*?assistantfinal", re.IGNORECASE | re.DOTALL)
TURN_BEGINS = re.compile(
    r"\A\s*(<s>|<bos>|<\|begin_of_text\|>|<\|im_start\|>(assistant)?|<\|start\|>assistant|<start_of_turn>model|"
    r"<\|begin_of_solution\|>|<\|start_header_id\|>assistant<\|end_header_id\|>)\s*"
)
TURN_ENDS = re.compile(
    r"<\|(im_end|endoftext|end_of_text|eot_id|eom_id|end|return|end_of_solution)\|>|<｜end▁of▁sentence｜>|"
    r"<end_of_turn>|(</s>|<eos>)\s*\Z"
)
_ENVELOPE = re.compile(
    r"<(answer|response|output)>((?:(?!</?\1>).)*)</\1>|<\|begin_of_box\|>((?:(?!<\|).)*)<\|end_of_box\|>",
    re.IGNORECASE | re.DOTALL,
)
_SPECIAL = r"<\|[\w.:/-]{1,60}\|>|<｜[^<>｜]{1,60}｜>"
SPECIAL = re.compile(_SPECIAL)
MARKS = f"{_BEGINS}|{_ENDS}|{_SPECIAL}"  # pattern of marks no answer holds, also valid for RE2


def spoken(text: str) -> str:
    """Return the answer in a model's text, without surrounding blanks.

    The marks are from chat templates: Qwen, DeepSeek and most others think in `<think>`, Kimi in `◁think▷`, Magistral
    in `[THINK]`, Gemma in `<unused94>`, gpt-oss in channels of its Harmony format. GLM boxes its answer, others put it
    in a tag: such an envelope around the whole of it is taken off.

    Raises:
        Truncated: the thoughts do not end.
        BadAnswer: a special token of a template stands in the answer.
    """
    ends = [found.end() for found in ENDS.finditer(text)]
    if ends and not text[ends[-1] :].strip() and (notes := [*_NOTE.finditer(text)]):
        return spoken(text[: notes[-1].start()])  # an explanation after the answer
    text = text[ends[-1] :] if ends else text
    if BEGINS.search(text):  # drafts in thoughts are no answer
        raise Truncated("the answer ends before its thinking does")
    while begun := TURN_BEGINS.match(text):
        text = text[begun.end() :]
    if ended := TURN_ENDS.search(text):  # the rest is another turn
        text = text[: ended.start()]
    if envelope := _ENVELOPE.fullmatch(text.strip()):
        text = envelope[2] or envelope[3] or ""
    if leaked := SPECIAL.search(text):
        raise BadAnswer(f"expected an answer, found the special token {one_line(leaked[0])} in it")
    return text.strip()


PARSER = 12
DAMAGED = "\ufffd"  # the place of a sign whose bytes were lost on the way
LONGEST_SENTENCES = 300  # greatest length of a gateway's message in the place of an answer
MOST_TOKENS = 10_000_000  # more tokens than any model takes or gives: a larger count is invalid
NO_USAGE = "expected token counts, found none"
ZERO_USAGE = "expected token counts above 0, found 0"
UNCOUNTED = (NO_USAGE, ZERO_USAGE)  # odd only where somebody charges
SAME_LOGPROB = 1e-3  # greatest difference of a token's two log-probabilities in one reply
MOST_TOGETHER = 1.01  # greatest sum of different tokens' probabilities, with room for servers' rounding
MOST_LOGPROB = 0.01  # greatest accepted log-probability: 0, with room for servers' rounding
BEFORE_CHOICE, AFTER_CHOICE = " \t\r\n\f\v\"'`*_#$([【「", " \t\r\n\f\v\"'`*_$)].:】」。!"
BOXED = re.compile(r"\\boxed\{(?:\\(?:text|mathrm|mathbf)\{([^{}]*)\}|([^{}]*))\}")  # in LaTeX
ANNOUNCED = re.compile(
    r"(?:(?:(?:the|my|final|correct) )*answer(?: is\b)?|(?:最终)?答案[是为]?)[\s:*_]*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Reply:
    """Response in terms shared by all providers."""

    text: str  # the model's text; may be empty
    refusal: str | None = None  # its refusal or the filter's reason
    cut: bool = False  # whether it reached the token cap
    broken: str | None = None  # how it ended, if its end is unknown
    unreadable: str | None = None  # content in the place of its text, if it is no text
    model: str | None = None  # the name reported by the server
    input_tokens: int = 0  # all tokens in, including audio
    audio_tokens: int = 0  # audio tokens in
    output_tokens: int = 0  # tokens out, including thinking
    odd_usage: str | None = None  # fault of the token counts, if any; all three are then 0
    # alternatives of the first token with their natural log-probabilities
    first_token: tuple[tuple[str, float], ...] = ()
    embedded: bool = False  # a function of Earmark wrote it: no template marks can leak into it


def token_counts(
    read: object, heard: Sequence[object], said: Sequence[object], total: object = None, *, text: str
) -> dict[str, Any]:
    """Return fields of a `Reply` from the token counts reported by a server, which are outside data.

    Args:
        read: all tokens in.
        heard: audio tokens among them, in parts.
        said: tokens out, in parts.
        total: all tokens in and out, if reported; those beyond both are thoughts, which the provider charges as said.
        text: the model's text.

    Returns:
        The counts; or in `odd_usage` the first value other than a whole number from 0 to `MOST_TOKENS`, or a count of 0
        where there were tokens: every request has some, and so has a text.
    """
    for one in (read, *heard, *said):
        if not _is_count(one):
            return {"odd_usage": f"expected a token count from 0 to {MOST_TOKENS:,}, found {one_line(repr(one), 60)}"}
    counts = [sum(int(one) for one in part) for part in ([read], heard, said)]  # type: ignore[call-overload]
    if counts[1] > counts[0]:
        return {"odd_usage": f"expected audio among the {counts[0]:,} tokens in, found {counts[1]:,} tokens of it"}
    if _is_count(total):
        counts[2] = max(counts[2], int(total) - counts[0])  # type: ignore[call-overload]
    if not counts[0] or (text and not counts[2]):
        return {"odd_usage": ZERO_USAGE}
    return dict(zip(("input_tokens", "audio_tokens", "output_tokens"), counts, strict=True))


Token: TypeAlias = tuple[str, float]


def first_tokens(chosen: Sequence[Token], listed: Sequence[Token]) -> tuple[Token, ...]:
    """Return the alternatives of the first token with their log-probabilities, the chosen one first.

    Two tokens may be spelled alike, such as `▁Yes` and `Yes`: both count. But the chosen one stands in the list too,
    and counts once; so it does where a server gives it on another scale, which shows if all together exceed 1.
    """
    twins = [token for token in listed if chosen and token[0] == chosen[0][0]]
    twin = min(twins, key=lambda token: abs(token[1] - chosen[0][1]), default=None)
    together = math.fsum(math.exp(min(logprob, 0.0)) for _, logprob in (*chosen[:1], *listed))
    if twin is None or (abs(twin[1] - chosen[0][1]) > SAME_LOGPROB and together <= MOST_TOGETHER):
        return (*chosen[:1], *listed)
    at = listed.index(twin)
    return (twin, *listed[:at], *listed[at + 1 :])


def model_name(value: object) -> str | None:
    """Return the model name reported by a server, in one line; None without a name."""
    return (one_line(value) or None) if isinstance(value, str) else None


def _is_count(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= MOST_TOKENS and value == int(value)


def answer_value(ask: Ask, reply: Reply, least_share: float = 0.0, fences: Iterable[str] = ()) -> Any:
    """Return the answer's value: text, a choice, JSON; for yes/no a dict with `p_yes` (0 to 1), for ratings `score`.

    Args:
        ask: the form of the answer.
        reply: the model's reply.
        least_share: least total share of the requested words in the first token's probability.
        fences: tags of the prompt's own fences, as `Request.fences` gives them.
    """
    if reply.refusal is not None:
        raise Refused(one_line(reply.refusal) or "no reason given")
    if reply.broken is not None:
        raise BrokenOff(f"expected an answer with a known end, found {one_line(reply.broken)}")
    if isinstance(ask, YesNo | ScaleRating):
        value = yes_no(ask, reply) if isinstance(ask, YesNo) else rating(ask, reply)
        share: float = value["share"]
        if share < least_share:
            raise LowShare(low_share(share, least_share, likeliest(reply)))
        return value
    if reply.unreadable is not None:
        raise BadAnswer(f"expected text, found {one_line(reply.unreadable)}")
    text = reply.text.strip() if reply.embedded else spoken(reply.text)
    if not text:
        if reply.cut:
            raise Truncated(f"no text came within {reply.output_tokens} tokens")
        raise Empty("the answer has no text")
    if leaked := next((tag for tag in fences if tag in text), None):
        raise BadAnswer(f"expected an answer, found the prompt's own fence '-{leaked}' in it")
    spoke: ServerSpoke | None = None
    if not reply.embedded and len(text) <= LONGEST_SENTENCES and not text.startswith(("{", "[")) and ends_runs(text):
        spoke = ServerSpoke(f"expected an answer, found a server's message in its place: {one_line(text)}")
    if isinstance(ask, Json):
        try:
            return json_value(ask, text, cut=reply.cut)
        except BadAnswer as error:  # JSON that fits is an answer, whatever it tells of
            raise spoke or error from None
    if spoke:
        raise spoke
    if reply.cut:
        raise Truncated(f"the answer ran into the token cap (max_tokens) after {reply.output_tokens} tokens")
    if isinstance(ask, FreeText):
        if fault := unfit(text) or (DAMAGED in text and "U+FFFD, the sign of damaged bytes"):
            raise BadAnswer(f"expected text, found {fault}")
        return text
    return _choice(ask, text)


def yes_no(ask: YesNo, reply: Reply) -> YesNoValue:
    """Compute the two-way softmax over the first token.

    Spellings count together regardless of case and surrounding space. If only yes or no is among the listed
    alternatives, the other has at most the mass of all unlisted tokens, and at most the least listed mass: this bound
    stands in and `bounded` is true.

    Returns:
        `p_yes` (0 to 1); `share` (0 to 1), the listed mass of yes and no: if it is small, the model was about to say
        something else; `bounded`.

    Raises:
        BadAnswer: no log-probabilities, or neither word is listed.
    """
    yes, no = _masses(reply, ask.words, f"{ask.yes} or {ask.no}")
    share, bounded = min(1.0, yes + no), yes == 0 or no == 0
    if bounded:
        chosen, *others = (math.exp(logprob) for _, logprob in reply.first_token)
        most = max(0.0, 1.0 - math.fsum([chosen, *others]))
        most = min(most, *others) if others else most
        yes, no = yes or min(most, no), no or min(most, yes)
    return {"p_yes": yes / (yes + no), "share": share, "bounded": bounded}


def likeliest(reply: Reply) -> str:
    """Return the likeliest first token for messages."""
    return one_line(max(reply.first_token, key=lambda pair: pair[1])[0]) or "a blank"


def low_share(share: float, least: float, likely: str = "") -> str:
    """Return a message about too small a share."""
    about = f" ('{likely}' is likelier)" if likely else ""
    return f"expected the words asked for to have {least:g} of the first token (least_share), found {share:.2g}{about}"


def rating(ask: ScaleRating, reply: Reply) -> dict[str, Any]:
    """Return the mean of the scale's digits weighted by their first-token probability; unlisted digits count as 0.

    Returns:
        `score`, from the scale's lowest to its highest; `share` (0 to 1), the digits' mass among all tokens.

    Raises:
        BadAnswer: no log-probabilities, or no digit of the scale is listed.
    """
    masses = _masses(reply, ask.words, f"a digit from {ask.lowest} to {ask.highest}")
    together = math.fsum(masses)
    mean = math.fsum(int(word) * mass for word, mass in zip(ask.words, masses, strict=True)) / together
    return {"score": mean, "share": min(1.0, together)}


def _masses(reply: Reply, words: Sequence[str], wanted: str) -> list[float]:
    """Return the probability of each word as the first token; at least one is listed."""
    if not reply.first_token:
        raise BadAnswer("expected log-probabilities of the first token, found none; does the server offer them?")
    for token, logprob in reply.first_token:
        if not logprob <= MOST_LOGPROB:  # also rejects NaN
            raise BadAnswer(f"expected the logarithm of a probability, found {logprob:g} of {one_line(token)!r}")
    masses = [_mass(reply.first_token, word) for word in words]
    if (together := math.fsum(masses)) > MOST_TOGETHER:
        raise BadAnswer(f"expected probabilities of at most 1 together, found {together:.2f}: no log-probabilities")
    if not any(masses):
        raise BadAnswer(f"expected {wanted} as the first token, found '{likeliest(reply)}' likelier")
    return masses


def _mass(tokens: tuple[tuple[str, float], ...], word: str) -> float:
    return sum(math.exp(logprob) for token, logprob in tokens if token.strip(" \t\n▁Ġ").lower() == word.lower())


def _choice(ask: Choice, text: str) -> str:
    said = unicodedata.normalize("NFKC", text).lstrip(BEFORE_CHOICE)  # of full-width letters and circled digits
    said = said[found.end() :] if (found := ANNOUNCED.match(said)) else said
    said = said.lstrip(BEFORE_CHOICE).rstrip(AFTER_CHOICE)
    said = (found[1] or found[2] or "") if (found := BOXED.fullmatch(said)) else said
    said = said.strip().casefold()
    for choice in ask.choices:
        if said == choice.casefold():
            return choice
    raise BadAnswer(f"expected one of {', '.join(ask.choices)}, found {one_line(text)!r}")
