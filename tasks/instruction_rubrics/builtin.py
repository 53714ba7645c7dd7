"""Write and judge instruction rubrics without a model: rules on words in English and Chinese, and clip measurements.

Weak on purpose: small lists of words, for trying the pipeline offline.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from earmark.schemas.errors import InputError
from earmark.schemas.registry import register
from earmark.tasks.audio.text_match import Measured, alignment
from earmark.tasks.instruction_rubrics.builtin_words import attribute_of, content, named_in, phrase_book
from earmark.tasks.instruction_rubrics.rows import ItemReply
from earmark.tasks.text.bilingual import Language, language_of, negates

Facts = Mapping[str, Any]

MOST_ITEMS = 12
LONGEST_SPAN = 200
_CLAUSE = {
    "en": re.compile(r"[,;:.!?\n]+\s|[.!?]+$|\s(?=(?:and|with|while|then|followed by|before|after)\s)"),
    "zh": re.compile(r"[，、；。：！？\n]+|(?=伴有|并且|然后|随后|同时)"),
}
_LEADING = {
    "en": re.compile(r"^(?:(?:and|with|while|then|followed by|an?|the|it|is|are|there)\b\s*)+", re.IGNORECASE),
    "zh": re.compile(r"^(?:伴有|并且|然后|随后|同时|和|以及|一首|一段|一个)+"),
}
_EDGES = " \t\"'“”‘’「」『』()（）[]{}<>`,.;:!?，。；：！？、"
_INAUDIBLE = re.compile(r"\b(?:copyright|filmed|photo|album|released|https?|www)\b|版权|专辑|发行", re.IGNORECASE)
_QUESTION = {"en": 'Is "{}" heard?', "zh": "是否能听到“{}”？"}
_HAS = {"en": "What is true names this too.", "zh": "真实描述中也有这一点。"}
_LACKS = {"en": "What is true does not name: {}.", "zh": "真实描述中没有：{}。"}
_SAYS = {"en": "The instruction, which is true of the clip, says: {}.", "zh": "符合该音频的指令写明：{}。"}
_MARK = {"en": "[word by word]", "zh": "【逐词】"}
_ADDED = {"en": " with a loud siren throughout", "zh": "并一直伴有响亮的警笛"}


@register("rubric-writer-1")
def rubric_writer(facts: Facts, clips: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Perturb, decompose, filter, label, give rationales, translate; `facts` are `ask` and its prompt's values."""
    try:
        return _WRITES[str(facts["ask"])](facts)
    except KeyError as missing:
        raise InputError(f"expected an ask of {', '.join(_WRITES)} and its facts, found no {missing}") from None


class ItemFacts(TypedDict):
    """A numbered item of an instruction."""

    id: int
    question: str
    basis: NotRequired[str]


class JudgeFacts(TypedDict, total=False):
    """Name the instruction that a question to the judge is about."""

    ask: str
    instruction: str
    item: str
    items: list[ItemFacts]
    truth: str


@register("rubric-judge-1")
def rubric_judge(facts: JudgeFacts, clips: list[Measured]) -> dict[str, Any] | list[dict[str, Any]] | str:
    """Judge whether a clip fits a text: by measured tempo, brightness and loudness, and by the words of its own
    caption.

    Args:
        facts: `instruction`, or `item`, a question about it; `ask`: `verify` (does it fit?), `mismatch` (is it wrong?),
            or nothing for a plain Yes or No; `truth`, the clip's own caption, if known; `items`, several
            questions with an `id`, each answered separately; for `hear`, unknown without a telling measurement.
        clips: one clip's measurements.

    Returns:
        `answer` and `evidence`, a list of these with `id`, or the word alone. Evidence names the measurements, and
        the fitting part of the text.
    """
    if facts.get("ask") == "hear":
        return {"items": [{"id": one["id"], **_heard(one["question"], clips)} for one in facts["items"]]}
    if items := facts.get("items"):
        answers = [rubric_judge({"ask": "verify", "item": one["question"]}, clips) for one in items]
        return [
            {"id": one["id"], **answer, "evidence": answer["evidence"][:400]}
            for one, answer in zip(items, answers, strict=True)
            if isinstance(answer, dict)
        ]
    text = str(facts.get("item") or facts.get("instruction") or "")
    if len(clips) != 1 or not text:
        raise InputError(f"expected one clip and an instruction or item, found {len(clips)} and {text[:40]!r}")
    fit = alignment(phrase_book(text, "en") if language_of(text) == "zh" else text, clips[0])
    wrong = contradictions(str(facts["truth"]), text) if facts.get("truth") else []
    fits = not wrong and not fit.wrong
    if not facts.get("ask"):
        return "Yes" if fits else "No"
    if fits:
        evidence = "; ".join(fit.notes) or "nothing that can be measured speaks against it"
    else:
        left = _without(text, [*fit.wrong, *wrong])
        instead = ", ".join(dict.fromkeys(fit.wrong.values())) or "its caption names something else"
        evidence = f"Heard instead: {instead}. What could fit: {left[:400]}"
    yes = fits if facts["ask"] == "verify" else not fits
    return {"answer": "yes" if yes else "no", "evidence": evidence[:600]}


def _heard(question: str, clips: list[Measured]) -> dict[str, str]:
    """Answer an item by measurements alone; most answers are unknown."""
    fit = alignment(phrase_book(question, "en") if language_of(question) == "zh" else question, clips[0])
    if fit.wrong:
        return {"answer": "no", "rationale": f"Measured: {', '.join(fit.wrong.values())}."[:400]}
    seen = "; ".join(fit.notes) or "nothing that can be measured tells"
    return {"answer": "yes" if fit.notes else "unknown", "rationale": f"Measured: {seen}."[:400]}


def _without(text: str, words: Sequence[str]) -> str:
    """Remove words from a text, in either language."""
    both = [rf"\b{re.escape(word)}\b" for word in words] + [re.escape(phrase_book(word, "zh")) for word in words]
    return " ".join(re.sub("|".join(both), "", text, flags=re.IGNORECASE).split())


def contradictions(truth: str, text: str) -> list[str]:
    """Return a description's words absent from the truth: words of the list, or most of the other words."""
    true, language = content(truth), language_of(text)
    wrong = [one.word for one in named_in(text, language) if not content(one.word) <= true]
    if wrong:
        return list(dict.fromkeys(wrong))
    units = content(text)
    missing = sorted(units - true)
    return missing if units and len(missing) * 2 > len(units) else []


def _perturb(facts: Facts) -> dict[str, Any]:
    caption, domain = str(facts["caption"]).strip(), str(facts["domain"])
    language = language_of(caption)
    named = [one for one in named_in(caption, language) if domain in one.domains]
    attribute = None
    if offered := [one["name"] for one in facts.get("attributes", ())]:
        by_name = {name: [one for one in named if attribute_of(one.dimension) == name] for name in offered}
        attribute = next((name for name in offered if by_name[name]), None)
        named = by_name[attribute] if attribute else []
    one = min(named, key=lambda word: _draw(caption, str(word.start)), default=None)
    if one is None:
        return _with_siren(caption, language)
    fresh = [other for other in one.others if other not in caption.lower()] or list(one.others)
    after = min(fresh, key=lambda other: _draw(caption, other))
    start, before = one.start, caption[one.start : one.end]
    if before[:1].isupper():
        after = after[:1].upper() + after[1:]
    if article := re.search(r"\b(a|an) $", caption[:start], re.IGNORECASE):
        start = article.start()
        fitting = "an" if after[:1].lower() in "aeiou" else "a"
        after = f"{fitting.capitalize() if article[1][0].isupper() else fitting} {after}"
        before = caption[start : one.end]
    changed = caption[:start] + after + caption[one.end :]
    return {
        "attribute": attribute or attribute_of(one.dimension), "before": before, "after": after, "also": [],
        "caption": changed,
    }  # fmt: skip


def _with_siren(caption: str, language: Language) -> dict[str, Any]:
    """Add a sound at the end, before the last full stop, to a caption without words of the list."""
    body = caption.rstrip(".!?。！？ ")
    at = max(body.rfind(" ") + 1, len(body) - 40) if body else 0
    before = caption[at:]
    after = body[at:] + _ADDED[language] + caption[len(body) :]
    return {"attribute": "added sound", "before": before, "after": after, "also": [], "caption": caption[:at] + after}


def _decompose(facts: Facts) -> dict[str, Any]:
    instruction = str(facts["instruction"])
    language = language_of(instruction)
    items: list[dict[str, str]] = []
    seen: set[frozenset[str]] = set()
    for clause in _clauses(instruction, language):
        units = frozenset(content(clause))
        if not units or units in seen or len(items) == MOST_ITEMS:
            continue
        seen.add(units)
        named = next(iter(named_in(clause, language)), None)
        dimension = named.dimension if named else {"en": "content", "zh": "内容"}[language]
        items.append({"dimension": dimension, "question": _QUESTION[language].format(clause), "basis": clause})
    if not items:
        whole = instruction.strip()[:LONGEST_SPAN]
        items.append({"dimension": "instruction", "question": _QUESTION[language].format(whole), "basis": whole})
    return {"items": items}


def _clauses(text: str, language: Language) -> Iterator[str]:
    for part in _CLAUSE[language].split(text):
        yield _LEADING[language].sub("", part.strip(_EDGES)).strip(_EDGES)[:LONGEST_SPAN].strip()


def _filter(facts: Facts) -> dict[str, Any]:
    instruction, kept, verdicts = content(str(facts["instruction"])), [set[str]()], []
    for item in facts["items"]:
        units = content(_basis(item))
        if _INAUDIBLE.search(_basis(item)):
            verdict = "inaudible"
        elif not units <= instruction:
            verdict = "unsupported"
        elif any(units <= earlier for earlier in kept):
            verdict = "redundant"
        else:
            verdict = "keep"
            kept.append(units)
        verdicts.append({"id": item["id"], "verdict": verdict})
    return {"items": verdicts}


def _labels_partly(facts: Facts) -> dict[str, Any]:
    """Answer as `_labels`, but deny an unnamed word only if the truth names another word excluding it."""
    named = {one.word for one in named_in(str(facts["truth"]), language_of(str(facts["truth"])))}
    answers: list[ItemReply] = _labels(facts)["items"]
    for item, answer in zip(facts["items"], answers, strict=True):
        words = named_in(_basis(item), language_of(_basis(item)))
        denied = any(one.word not in named and named & set(one.others) for one in words)
        answer["answer"] = "unknown" if answer["answer"] == "no" and not denied else answer["answer"]
    return {"items": answers}


def _read(facts: Facts) -> dict[str, str]:
    """Return whether an instruction contradicts the truth about a clip, or leaves parts of it out."""
    truth, text = str(facts["truth"]), str(facts["instruction"])
    words = [*contradictions(truth, text), *contradictions(text, truth)]
    evidence = _LACKS["en"].format(", ".join(words)[:200]) if words else _HAS["en"]
    return {"answer": "yes" if words else "no", "evidence": evidence}


def _direction(facts: Facts) -> dict[str, Any]:
    """Deny an item if its question and its words differ in negation."""
    language = str(facts["language"])
    same = (
        (one["id"], negates(str(one["question"]), language) == negates(str(one["basis"]), language))
        for one in facts["items"]
    )
    return {"items": [{"id": number, "answer": "yes" if alike else "no"} for number, alike in same]}


def _labels(facts: Facts) -> dict[str, Any]:
    truth, language = str(facts["truth"]), language_of(str(facts["instruction"]))
    answers = []
    for item in facts["items"]:
        wrong = contradictions(truth, _basis(item))
        words = ", ".join(wrong)[:200]
        rationale = (_LACKS if wrong else _HAS)[language].format(words)
        answers.append({"id": item["id"], "answer": "no" if wrong else "yes", "rationale": rationale})
    return {"items": answers}


def _rationales(facts: Facts) -> dict[str, Any]:
    language = language_of(str(facts["instruction"]))
    return {
        "items": [{"id": one["id"], "rationale": _SAYS[language].format(_basis(one)[:300])} for one in facts["items"]]
    }


def _translate(facts: Facts) -> dict[str, Any]:
    into: Language = "zh" if facts["into"] == "zh" else "en"
    return {"texts": [_by_word(str(text), into) for text in facts["texts"]]}


def _by_word(text: str, into: Language) -> str:
    """Translate by a phrase book, with a mark; map sentences of these rules to the same sentences."""
    for form in (_QUESTION, _HAS, _LACKS, _SAYS):
        words = _within(text, form["en" if into == "zh" else "zh"])
        if words is not None:
            return f"{_MARK[into]} {form[into].format(phrase_book(words, into))}"
    return f"{_MARK[into]} {phrase_book(text, into)}"


def _within(text: str, form: str) -> str | None:
    """Return the filling of a sentence's blank; None for another sentence."""
    before, _, after = map(re.escape, form.partition("{}"))
    match = re.fullmatch(f"{before}(.*){after}", text.strip(), re.DOTALL)
    return match[1] if match else None


def _basis(item: ItemFacts) -> str:
    """Return the words behind an item."""
    if item.get("basis"):
        return str(item["basis"])
    question = str(item["question"])
    quoted = (_within(question, form) for form in _QUESTION.values())
    return next((words for words in quoted if words is not None), question)


def _draw(text: str, choice: str) -> str:
    return hashlib.sha256(f"{text}\n{choice}".encode()).hexdigest()


_WRITES: dict[str, Callable[[Facts], dict[str, Any]]] = {
    "perturb": _perturb,
    "decompose": _decompose,
    "filter": _filter,
    "direction": _direction,
    "labels": _labels,
    "labels-partly": _labels_partly,
    "read": _read,
    "rationales": _rationales,
    "translate": _translate,
}
