"""Answer questions about scores without a model, by rules on words; the rules never see the score."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from earmark.schemas.errors import InputError
from earmark.schemas.registry import register

Facts = Mapping[str, Any]
Clips = list[Mapping[str, float]]

_WORD = re.compile(r"[\w♯♭#/+'°-]+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_CHATTER = re.compile(r"^(?:well|yes|no|yeah|ok|okay|so|i think|i believe|imo|imho|actually)[,:. ]+", re.IGNORECASE)
_SWAPS = (
    ("major", "minor"), ("dominant", "subdominant"), ("tonic", "mediant"), ("first", "second"), ("sharp", "flat"),
    ("triplet", "quintuplet"), ("half", "whole"), ("upper", "lower"), ("left", "right"), ("treble", "bass"),
    ("slur", "tie"), ("staccato", "tenuto"), ("crescendo", "diminuendo"), ("perfect", "deceptive"),
    ("trill", "mordent"), ("fugue", "canon"), ("duple", "triple"), ("loud", "soft"),
)  # fmt: skip
_STOCK = (
    "It is a printing error without musical meaning",
    "It marks the end of the first phrase",
    "It tells the player to repeat the bar",
    "It is a courtesy accidental from the last bar",
    "It shows a change of key to the relative minor",
    "It belongs to the other hand of the pianist",
    "It is an ornament that begins on the beat",
    "It divides the beat into three equal parts",
)  # five to ten words each
_TOPICS: tuple[tuple[str, str, str], ...] = (
    ("Form", "contrapuntal forms", "fugue canon invention stretto counterpoint"),
    ("Form", "phrase structure", "phrase period sentence section sonata form coda"),
    ("Rhythm & Meter", "metric structure", "meter metre signature time beat hemiola bar measure"),
    ("Rhythm & Meter", "rhythmic patterns", "rhythm triplet tuplet syncopation dotted swing eighth"),
    ("Harmony & Tonality", "modulation patterns", "modulate modulation key pivot tonicization"),
    ("Harmony & Tonality", "modal mixture", "mode modal borrowed dorian mixture lydian phrygian"),
    ("Harmony & Tonality", "chord progressions", "chord harmony cadence dominant roman numeral seventh"),
    ("Texture", "polyphonic", "voice voices polyphonic polyphony imitation"),
    ("Texture", "orchestral", "orchestra orchestral strings violin horn scoring transposing"),
    ("Texture", "homophonic", "homophonic accompaniment melody texture"),
    ("Expression & Performance", "dynamics & articulation", "dynamic slur staccato accent crescendo dot tenuto"),
    ("Expression & Performance", "technique & interpretation", "fingering pedal ornament trill play hand"),
)
_HARD = frozenset(["fugue", "enharmonic", "modulation", "hemiola", "stretto", "neapolitan", "augmented", "hypermeter"])
_EASY = frozenset(["symbol", "sign", "dot", "note", "clef", "name", "mean", "called", "letter", "number"])


@register("score-writer-1")
def score_writer(facts: Facts, clips: Clips) -> dict[str, Any]:
    """Make a question from a thread's title, with the first sentence of each comment as an option; or wrong options.

    Args:
        facts: `step`. For `rewrite`: `title`, `comments` (`text`, `needed`), `options` and `longest`, the most options
            and words. For `distract`: `truth`, `others`, `count`.
    """
    match facts.get("step"):
        case "rewrite":
            return _rewrite(facts)
        case "distract":
            return _distract(str(facts["truth"]), [str(text) for text in facts["others"]], int(facts["count"]))
    raise InputError(f"expected the step rewrite or distract, found {facts.get('step')!r}")


def _rewrite(facts: Facts) -> dict[str, Any]:
    numbered = list(enumerate(facts["comments"], 1))
    options: list[dict[str, Any]] = []
    for number, comment in sorted(numbered, key=lambda pair: (not pair[1]["needed"], pair[0])):
        text = _statement(str(comment["text"]), int(facts["longest"]))
        same = any(_bag(text) == _bag(option["text"]) for option in options)
        if len(options) < int(facts["options"]) and _bag(text) and not same:
            options.append({"comment": number, "text": text})
        elif comment["needed"]:
            return {"usable": False, "why": "the best answers say the same or nothing", "question": "", "options": []}
    title = " ".join(str(facts["title"]).split())[:300]
    question = title if title.endswith("?") else f"What can be said of the score: {title.rstrip(' .!')}?"
    if len(_WORD.findall(question)) < 3:
        question = f"Of the score: {question}"
    return {
        "usable": True,
        "why": "",
        "question": question,
        "options": sorted(options, key=lambda option: option["comment"]),
    }


def _statement(text: str, longest: int) -> str:
    """Return the first sentence of more than two words, without leading chatter, cut to a number of words."""
    sentences = [_CHATTER.sub("", sentence.strip()) for sentence in _SENTENCE.split(text)]
    chosen = next((sentence for sentence in sentences if len(_WORD.findall(sentence)) > 2), text)
    cut = " ".join(chosen.split()[:longest])[:160].rstrip(" ,;:.!?")
    return f"{cut[:1].upper()}{cut[1:]}"


def _distract(truth: str, others: Sequence[str], count: int) -> dict[str, str]:
    """Change one word of the right option if a known swap fits; add sentences fitting any score."""
    taken = {frozenset(_bag(text)) for text in (truth, *others)}
    wrong: list[str] = []
    for one, other in (pair for swap in _SWAPS for pair in (swap, swap[::-1])):
        changed = re.sub(rf"\b{one}\b", other, truth, count=1, flags=re.IGNORECASE)
        if 5 <= len(_WORD.findall(changed)) <= 10 and changed.casefold() != truth.casefold():
            wrong.append(f"{changed[:1].upper()}{changed[1:]}")
    start = sum(map(ord, truth)) % len(_STOCK)
    wrong.extend((*_STOCK[start:], *_STOCK[:start]))
    kept: list[str] = []
    for text in wrong:
        if frozenset(_bag(text)) not in taken and len(kept) < count:
            kept.append(text)
            taken.add(frozenset(_bag(text)))
    return {f"Option {letter}": text for letter, text in zip("ABC", kept, strict=False)}


@register("score-judge-1")
def score_judge(facts: Facts, clips: Clips) -> str:
    """Return the letter of the option sharing most words with the question; prefer the longest, then the first."""
    question = _bag(str(facts["question"]))
    options = [str(option) for option in facts["options"]]
    best = max(
        range(len(options)), key=lambda place: (len(_bag(options[place]) & question), len(options[place]), -place)
    )
    return "ABCDEFGH"[best]


@register("score-labeller-1")
def score_labeller(facts: Facts, clips: Clips) -> dict[str, str]:
    """Choose a category and subcategory by occurring words, or a difficulty by words and length.

    Args:
        facts: `step`, the prompt's name; `question`; `options`.
    """
    question = [word.casefold() for word in _WORD.findall(str(facts["question"]))]
    answers = [word.casefold() for option in facts["options"] for word in _WORD.findall(str(option))]
    match facts.get("step"):
        case "score-question-taxonomy":
            every = [*question, *question, *answers]
            counts = [sum(every.count(word) for word in words.split()) for *_, words in _TOPICS]
            category, subcategory, _ = _TOPICS[counts.index(max(counts))] if max(counts) else _TOPICS[6]
            return {"category": category, "subcategory": subcategory}
        case "score-question-difficulty":
            hard, easy = (sum(word in words for word in question) for words in (_HARD, _EASY))
            if hard or sum(word in _HARD for word in answers) > 1:
                return {"difficulty": "hard"}
            return {"difficulty": "easy" if easy and len(question) < 16 else "medium"}
    raise InputError(f"expected a step of labelling, found {facts.get('step')!r}")


@register("score-reader-1")
def score_reader(facts: Facts, clips: Clips) -> str:
    """Return Yes or No by words in common: an option without words of the question counts as possibly wrong."""
    option = _bag(str(facts["option"]))
    other = _bag(str(facts.get("truth", facts["question"])))
    alike = len(option & other) > 0.8 * len(option | other)
    return "Yes" if alike == ("truth" not in facts) else "No"


def _bag(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}
