"""Turn a model's reply into an answer in the requested form, or into a typed fault. Pure functions; nothing is asked.

Raise `PARSER` with every change of their results: finished requests are then read again from their raw responses,
without asking.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from earmark.schemas.questions import Ask, Choice, FreeText, Json, ScaleRating, Text, YesNo, YesNoValue
from earmark.tasks.annotation.errors import (
    BadAnswer,
    BrokenOff,
    Empty,
    LowShare,
    Refused,
    SchemaMismatch,
    Truncated,
    one_line,
)
from earmark.tasks.annotation.prompts import Rendering
from earmark.tasks.annotation.request import Request

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

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
    if ends and not text[ends[-1] :].strip() and (note := _NOTE.search(text)):
        return spoken(text[: note.start()])  # an explanation after the answer
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


_MARKS = " \t\r\n*_`\"'“”‘’.:"
_ALMOST = re.compile(
    r"""
      (?P<string> "(?:[^"\\\n]|\\.)*" )                                       # JSON already, but for raw tabs
    | (?<=[{\[,:｛［，：]) (?P<gap>\s*) (?P<lines> "(?:[^"\\]|\\.)*" ) (?=\s*[,:}\]｝］，：])  # over several lines
    | [“„«] (?P<typographic> [^“”„«»"\\]* ) [”“»]
    | (?<=[{\[,:｛［，：]) (?P<space>\s*) '(?P<single> [^'"\\]* )' (?=\s*[,:}\]｝］，：])
    | (?P<mark> \*\*|` )                                                      # around a key, or a fence
    | (?P<comma> [,，](?=\s*[}\]｝］]) )
    | (?P<wide> [｛｝［］：，] )                                                # full-width signs
    | \b(?P<word> True|False|None )\b                                         # as Python writes them
    """,
    re.VERBOSE,
)
_ESCAPED = {ord("\n"): r"\n", ord("\r"): r"\r", ord("\t"): r"\t"}
_HEADING = re.compile(r"[\s#*_]*(?:\d{1,2}[.)]\s*)?")
_WORDS = {"True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")


def as_json(text: str) -> str:
    """Turn almost-JSON into JSON: typographic and single quotes, commas before a closing bracket, Markdown marks,
    full-width signs and Python's words outside strings, line breaks and tabs in strings.

    Nothing is completed or guessed. Names and words of the schema match in any case, and a number in quotes is a number
    (`fitted`). Records numbered from 0 are numbered from 1 where the schema is, and lose fields of their own. Any
    remaining misfit is a fault.
    """
    return _ALMOST.sub(_plain, text)


def _plain(part: re.Match[str]) -> str:
    match part.lastgroup:
        case "string" | "lines":
            return (part["gap"] or "") + part[part.lastgroup].translate(_ESCAPED)
        case "typographic" | "single":
            return (part["space"] or "") + json.dumps(part[part.lastgroup], ensure_ascii=False)
        case "word":
            return _WORDS[part.group()]
        case "wide":
            return chr(ord(part.group()) - 0xFEE0)
    return ""


def fitted(value: Any, schema: Any) -> Any:
    """Return a value with names and words spelled as in the schema; unknown names and words stay unchanged.

    Args:
        value: JSON.
        schema: JSON schema, of which `properties`, `items`, `enum` and `type` are used.
    """
    if not isinstance(schema, dict):
        return value
    match value:
        case dict():
            return _fitted_object(value, schema.get("properties", {}))
        case [[*inner]] if _item_type(schema) not in ("array", None):  # [[7, 5]] for [7, 5]
            return [fitted(one, schema["items"]) for one in inner]
        case list():
            return _numbered([fitted(one, schema.get("items")) for one in value], schema)
        case str() if "enum" in schema:
            return _spelled(value, schema["enum"])
        case str() if schema.get("type") in ("number", "integer") and _NUMBER.fullmatch(value.strip()):
            return float(value) if "." in value else int(value)
    return value


def _fitted_object(value: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    names = [_spelled(name, [*properties], _HEADING.sub("", name, count=1)) for name in value]
    if len({*names}) < len(names):  # two spellings of a name have two answers
        return value
    return {name: fitted(one, properties.get(name)) for name, one in zip(names, value.values(), strict=True)}


def _numbered(rows: list[Any], schema: dict[str, Any]) -> list[Any]:
    """Return records without fields beyond the schema's, and with ids from 1 in place of ids from 0."""
    known = schema["items"].get("properties", {}) if isinstance(schema.get("items"), dict) else {}
    if known.get("id", {}).get("minimum") != 1 or not all(isinstance(row, dict) for row in rows):
        return rows
    first = int(any(row.get("id") == 0 and type(row["id"]) is int for row in rows))
    kept = [{name: value for name, value in row.items() if name in known} for row in rows]
    return [{**row, "id": row["id"] + first} if type(row.get("id")) is int else row for row in kept]


def _spelled(word: str, known: list[Any], bare: str = "") -> str:
    """Return the known word meant, if there is just one; `bare` is the word without the marks of a heading."""
    if word in known:
        return word
    plain = (bare or word).strip(_MARKS).casefold()
    meant = [one for one in known if isinstance(one, str) and one.casefold() == plain]
    return meant[0] if len(meant) == 1 else word


def _item_type(schema: dict[str, Any]) -> str | None:
    items = schema.get("items")
    return items.get("type") if isinstance(items, dict) else None


MOST_SHOWN = 4_000  # length of the last answer as shown: endless answers are a common fault, and would fill the context


def explained(request: Request, answer: str, fault: str) -> Request:
    """Return the request with its last answer and its fault below its own text, both fenced: a model wrote them.

    Yes/no and ratings stay unchanged: there the first token's probabilities are the answer.

    Args:
        request: the question.
        answer: the last answer; only the start of a long answer is shown.
        fault: expected and found.
    """
    if isinstance(request.ask, YesNo | ScaleRating):
        return request
    fence = Rendering([answer, fault])
    shown = answer if len(answer) <= MOST_SHOWN else f"{answer[:MOST_SHOWN]} […]"
    text = (
        "This question was asked before, and the answer could not be used. Answer it anew and in full, without the "
        f"fault. {fence.rule()}\n\n{fence.fence(shown, 'last-answer')}\n\n{fence.fence(fault, 'fault')}"
    )
    *before, last = request.messages
    return replace(request, messages=(*before, replace(last, parts=(*last.parts, Text(text)))))


PARSER = 7
MOST_TOKENS = 10_000_000  # more tokens than any model takes or gives: a larger count is invalid
NO_USAGE = "expected token counts, found none"
MOST_DEPTH = 64  # greatest nesting of lists and objects in an answer
SAME_LOGPROB = 1e-3  # greatest difference of a token's two log-probabilities in one reply
MOST_TOGETHER = 1.01  # greatest sum of different tokens' probabilities, with room for servers' rounding
MOST_LOGPROB = 0.01  # greatest accepted log-probability: 0, with room for servers' rounding
BEFORE_CHOICE, AFTER_CHOICE = " \t\r\n\f\v\"'`*([（［【「", " \t\r\n\f\v\"'`*)].:）］】」。：！!"


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


def token_counts(read: object, heard: Sequence[object], said: Sequence[object], total: object = None) -> dict[str, Any]:
    """Return fields of a `Reply` from the token counts reported by a server, which are outside data.

    Args:
        read: all tokens in.
        heard: audio tokens among them, in parts.
        said: tokens out, in parts.
        total: all tokens in and out, if reported; those beyond both are thoughts, which the provider charges as said.

    Returns:
        The counts; or in `odd_usage` the first value other than a whole number from 0 to `MOST_TOKENS`.
    """
    for one in (read, *heard, *said):
        if not _is_count(one):
            return {"odd_usage": f"expected a token count from 0 to {MOST_TOKENS:,}, found {one_line(repr(one), 60)}"}
    counts = [sum(int(one) for one in part) for part in ([read], heard, said)]  # type: ignore[call-overload]
    if counts[1] > counts[0]:
        return {"odd_usage": f"expected audio among the {counts[0]:,} tokens in, found {counts[1]:,} tokens of it"}
    if _is_count(total):
        counts[2] = max(counts[2], int(total) - counts[0])  # type: ignore[call-overload]
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
    if isinstance(ask, Json):
        return _json_value(ask, text, cut=reply.cut)
    if reply.cut:
        raise Truncated(f"the answer ran into the token cap (max_tokens) after {reply.output_tokens} tokens")
    if isinstance(ask, FreeText):
        if fault := _unfit(text):
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
    if not any(masses):
        raise BadAnswer(f"expected {wanted} as the first token, found '{likeliest(reply)}' likelier")
    return masses


def _mass(tokens: tuple[tuple[str, float], ...], word: str) -> float:
    return sum(math.exp(logprob) for token, logprob in tokens if token.strip(" \t\n▁Ġ").lower() == word.lower())


def _choice(ask: Choice, text: str) -> str:
    said = text.lstrip(BEFORE_CHOICE).rstrip(AFTER_CHOICE).casefold()
    for choice in ask.choices:
        if said == choice.casefold():
            return choice
    raise BadAnswer(f"expected one of {', '.join(ask.choices)}, found {one_line(text)!r}")


def _json_value(ask: Json, text: str, *, cut: bool) -> Any:
    validator = _validator(ask.schema)
    values = _checked_json(text)
    fitting = [value for value in values if validator.is_valid(value)]
    if not fitting:
        text = as_json(text)
        values = [*values, *_checked_json(text)]
        meant = [fitted(value, validator.schema) for value in values]
        fitting = [value for value in meant if validator.is_valid(value)]
    if fitting and all(value == fitting[0] for value in fitting) and not (cut and _unfinished(text, len(fitting))):
        return fitting[0]
    if cut:
        raise Truncated("the JSON ran into the token cap (max_tokens)")
    if not values:
        raise SchemaMismatch(f"expected JSON, found {one_line(text)!r}")
    if fitting:
        raise SchemaMismatch(f"expected one JSON value, found {len(fitting)} different ones")
    from jsonschema.exceptions import best_match

    misfit = best_match(islice(validator.iter_errors(values[0]), 50))  # a list of a million faults is not worth more
    where = one_line(misfit.json_path) if misfit else "$"
    raise SchemaMismatch(f"{where}: {one_line(misfit.message) if misfit else 'does not fit'}")


def _checked_json(text: str) -> list[Any]:
    """Return the JSON values in a text."""
    values = list(_json_in(text))
    if fault := next(filter(None, map(_unfit, values)), None):
        raise SchemaMismatch(f"expected JSON, found {fault} in it")
    return values


def _unfit(value: Any, depth: int = 0) -> str | None:
    """Return the reason no table can hold a value, or None."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return "half a surrogate pair"
        return "a NUL character" if "\0" in value else None
    if not isinstance(value, list | dict):
        return None
    if depth == MOST_DEPTH:
        return f"more than {MOST_DEPTH} lists and objects inside each other"
    inner = value if isinstance(value, list) else [*value, *value.values()]
    return next(filter(None, (_unfit(one, depth + 1) for one in inner)), None)


def _json_in(text: str) -> Iterator[Any]:
    """Yield the whole text as JSON, or else each outermost object or array in it."""
    decoder = _decoder()
    try:
        yield decoder.decode(text)
    except (ValueError, RecursionError):
        yield from _embedded(decoder, text)


def _embedded(decoder: json.JSONDecoder, text: str) -> Iterator[Any]:
    at, tries = 0, 0
    while (start := _opening(text, at)) >= 0 and tries < 50:  # a long text of braces is not worth more
        tries += 1
        try:
            value, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = start + 1
        else:
            yield value


_NESTING = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\]]', re.DOTALL)  # a string, up to the end if it has none
_BETWEEN = re.compile(r"""(?:[\s,:\d.+-]|[eE]|true|false|null|'(?:[^'\\]|\\.)*+'?+)*+""")  # beside strings and brackets
_LAST = re.compile(_BETWEEN.pattern + r"[a-z]{0,4}")


def _unfinished(text: str, whole: int) -> bool:
    """Return whether an object or array runs into the end of a text: whole ones before or in it may be drafts.

    Behind two or more whole ones, a beginning of the same is the loop of a small model, no second thought.
    """
    at = 0
    while (at := _opening(text, at)) >= 0:
        start, end, depth = at, at, 0
        for part in _NESTING.finditer(text, at):
            if not _BETWEEN.fullmatch(text, end, part.start()):  # prose, such as [0, 1)
                break
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(part[0], 0)
            end = part.end()
            if depth == 0:
                break
        if depth and _LAST.fullmatch(text, end):
            return whole < 2 or text[start:] not in text[:start]
        at = start + 1 if depth else end
    return False


def _opening(text: str, at: int) -> int:
    found = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
    return min(found, default=-1)


@lru_cache(maxsize=1)
def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_constant=_no_constant, parse_float=_finite, parse_int=_whole, object_pairs_hook=_no_doubles
    )


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is beyond every number")
    return value


def _whole(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= (value := int(text)) < 2**63:
        raise ValueError(f"{text[:20]} has more than 64 bits")
    return value


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject an object with a duplicate key: neither value is the model's choice."""
    held = dict(pairs)
    if len(held) != len(pairs):
        raise ValueError("a key stands twice")
    return held


@lru_cache(maxsize=256)
def _validator(schema: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # imported here, as it takes 60 ms and an up-to-date build reads none

    return Draft202012Validator(json.loads(schema))
