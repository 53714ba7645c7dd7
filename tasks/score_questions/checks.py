"""Check a question and its options. Pure: a resumed build reaches the same results."""

import re
from collections.abc import Sequence

from earmark.schemas.score_questions import ScoreQuestions
from earmark.tasks.pipeline.ask import Fault
from earmark.tasks.pipeline.refused import refusal_fault
from earmark.tasks.score_questions.requests import LEAST_OPTIONS, LONGEST_OPTION_WORDS, MOST_OPTIONS, needed_numbers
from earmark.tasks.score_questions.rows import PooledThread, RewrittenThread

ALIKE = 0.8  # share of words in common from which two options count as equal
LONGER = 1.5  # factor over the next longest option from which its length gives an option away
DISTRACTOR_WORDS = (5, 10)  # fewer where the right option has fewer
_WORD = re.compile(r"[\w♯♭#/+°-]+")
_STOP = frozenset(["a", "an", "the", "of", "is", "are", "it", "its", "this", "that", "in", "on", "to", "and", "as"])
_JUDGED = (
    r"(?:\s+(?:are|is|could\s+be|can\s+be|may\s+be)\s+(?:\w+\s+)?(?:right|correct|true|wrong|valid|possible|plausible)\b"
    r"|\s+(?:apply|applies|fits?)(?:\s+here)?\W*$)"
)
_PAIR = r"(?:both|either|neither)\s+\(?[a-h]\)?\s+(?:and|or|nor)\s+\(?[a-h]\)?"
# letters and pronouns speak of notes and voices, too, unless they are all that is said, or are judged
_ABOUT_OPTIONS = re.compile(
    r"(?i:\b(?:all|none|both|any|either|neither|two)\s+of\s+(?:the\s+)?"
    rf"(?:(?:above|below|these|(?:those\s+)?(?:others?|options?|answers?))\b|(?:them|those)(?:{_JUDGED}|\W*$)))"
    rf"|(?i:^\W*{_PAIR}\W*$|\b{_PAIR}{_JUDGED})"
    r"|(?i:\boptions?\s+\(?[a-h]\)?(?:\W|$))"
    r"|\b(?i:answers?)\s+\(?[A-H]\)?(?:\W|$)"
)
# Roman numerals, and chords such as Cm7 and CM7
_CASED = re.compile(r"[b#♭♯]?(?:[IV]+|[iv]+)[°ø+/\diIvV-]*|[A-G][b#♭♯]?(?:m|M|mM|min|maj)[\db#♭♯+/-]*[A-G]?")
_PRONOUN = re.compile(r"\bi(?=['’]|\s+(?:think|believe|guess|hear|see|say|know|feel|would|am)\b)")
_MARKED = re.compile(
    r"^\W*(?:wrong|incorrect|distractor)(?: (?:answer|option))?\s*:|"
    r"[(\[](?:correct|distractor|false|incorrect|wrong)(?: (?:answer|option))?[)\]]\W*$",
    re.IGNORECASE,
)
_LETTER = re.compile(r"(?:\(?([A-H])(?:\)|[.:])|\(?([a-h])\))\s+(?![A-Z]\.)")  # of a list; C. P. E. Bach has initials
_BEGINS = re.compile(r"(?:An?|Because|Both|Each|In|It|Its|No|On|The|There|They|This|These|When)\b")
_FORUM = re.compile(r"\b(?:reddit|subreddit|this thread|this post|the poster|original poster|OP)\b")


def words_of(text: str) -> list[str]:
    """Return the words of a text."""
    return _WORD.findall(text)


def alike(one: str, other: str) -> bool:
    """Return whether two options are equal but for case and sign, or share nearly all words.

    The same words in another order are another statement: from V to I, from I to V.
    """
    whole = [_spoken(text) for text in (one, other)]
    said, told = ([word for word in words if word not in _STOP] for words in whole)
    first, second = set(said), set(told)
    if set(whole[0]) == set(whole[1]):
        return said == told
    if first == second:
        return said == told and len(first) > 4
    return len(first & second) / len(first | second) >= ALIKE and min(map(len, (first, second))) > 4


def _spoken(text: str) -> list[str]:
    """Return the words of a text without case, save where case tells chords, and the note A from the article."""
    words = words_of(_PRONOUN.sub("I", text))
    if (text.isupper() or text.istitle()) and any(len(word) > 1 and not _CASED.fullmatch(word) for word in words):
        return [word.casefold() for word in words]  # case tells nothing here
    return [
        word if _CASED.fullmatch(word) or (word == "A" and place) else word.casefold()
        for place, word in enumerate(words)
    ]


def speaks_of_options(text: str) -> bool:
    """Return whether an option refers to other options ("all of the above"), or says that it is right or wrong."""
    return bool(_ABOUT_OPTIONS.search(text) or _MARKED.search(text))


def without_letters(options: Sequence[str]) -> list[str]:
    """Return options without the letters of a list: all have one, and they follow each other from A or B.

    Others may name notes, keys or people. So may `A:` and `A.` where fewer than three have them, except before a word
    that begins a sentence.
    """
    texts = [text.strip() for text in options]
    found = [one for text in texts if (one := _LETTER.match(text))]
    letters = "".join(one[1] or one[2] for one in found).upper()
    in_turn = len(found) == len(texts) and ("ABCDEFGH".find(letters) in (0, 1) or len(texts) == 1)
    sure = len(texts) > 2 or all(")" in one[0] or _BEGINS.match(one.string, one.end()) for one in found)
    return [text[one.end() :] for text, one in zip(texts, found, strict=True)] if in_turn and sure and texts else texts


def given_away(options: Sequence[str], truth: int) -> bool:
    """Return whether the right option, by its place, is much longer than all others."""
    lengths = [len(words_of(option)) for option in options]
    others = lengths[:truth] + lengths[truth + 1 :]
    return bool(others) and lengths[truth] > LONGER * max(others) and lengths[truth] - max(others) >= 4


def check_rewriting(config: ScoreQuestions, thread: PooledThread, value: RewrittenThread) -> Fault | None:
    """Return the first fault of a rewritten thread; None for a thread declared unusable."""
    if not value["usable"]:
        return None
    comments = thread["best_comments"]
    question, options = value["question"].strip(), value["options"]
    if len(words_of(question)) < 3:
        return Fault("no_question", f"expected a question, found {question[:80]!r}")
    if refused := refusal_fault(question, of_image=True):
        return refused
    if forum := _FORUM.search(question):
        return Fault("no_question", f"expected a question that stands alone, found {forum[0]!r}")
    numbers = [option["comment"] for option in options]
    if stray := [number for number in numbers if number > len(comments)]:
        return Fault("wrong_comments", f"expected numbers from 1 to {len(comments)}, found {stray[0]}")
    if len(set(numbers)) < len(numbers):
        return Fault("wrong_comments", f"expected each comment once, found {numbers}")
    if missing := sorted(needed_numbers(comments) - set(numbers)):
        return Fault("wrong_comments", f"expected an option from comment {missing[0]}, found {sorted(numbers)}")
    if len(options) > MOST_OPTIONS:
        return Fault("option_count", f"expected at most {MOST_OPTIONS} options, found {len(options)}")
    return check_options(without_letters([option["text"] for option in options]), LONGEST_OPTION_WORDS)


def check_options(options: Sequence[str], longest: int) -> Fault | None:
    """Return the first fault of options by themselves and side by side."""
    for place, option in enumerate(options):
        count = len(words_of(option))
        if not 1 <= count <= longest:
            return Fault("option_length", f"expected 1 to {longest} words, found {count}: {option[:80]!r}")
        if refused := refusal_fault(option, of_image=True):
            return refused
        if speaks_of_options(option):
            return Fault("speaks_of_options", f"expected a statement of its own, found {option[:80]!r}")
        if same := next((other for other in options[:place] if alike(option, other)), None):
            return Fault("options_alike", f"expected options that differ, found {same[:60]!r} and {option[:60]!r}")
    return None


def check_left(options: Sequence[str]) -> Fault | None:
    """Return the fault of a question with options removed; the remaining options begin with the right one."""
    if len(options) < LEAST_OPTIONS:
        return Fault("too_few_options", f"expected at least {LEAST_OPTIONS} options, found {len(options)} left")
    if given_away(options, 0):
        return Fault("longer_is_right", f"expected options about as long as {options[0][:80]!r} to be left")
    return None


def good_distractors(
    written: Sequence[str], truth: str, others: Sequence[str], most: int, unused: Sequence[str] = ()
) -> tuple[list[str], Fault | None]:
    """Return the usable distractors, in order, and the first fault of the others.

    Args:
        truth: the right option.
        others: the earlier options.
        most: the number wanted.
        unused: texts that are no options and may be right.
    """
    good: list[str] = []
    fault: Fault | None = None
    least, longest = min(DISTRACTOR_WORDS[0], len(words_of(truth))), DISTRACTOR_WORDS[1]
    for text in without_letters([" ".join(text.split()) for text in written]):
        count = len(words_of(text))
        if refused := refusal_fault(text, of_image=True):
            wrong = refused
        elif not least <= count <= longest:
            wrong = Fault("option_length", f"expected {least} to {longest} words, found {count}: {text[:80]!r}")
        elif speaks_of_options(text):
            wrong = Fault("speaks_of_options", f"expected a statement of its own, found {text[:80]!r}")
        elif alike(text, truth):
            wrong = Fault("options_alike", f"expected a wrong option, found {text[:80]!r} for {truth[:80]!r}")
        elif any(alike(text, other) for other in (*others, *unused, *good)):
            wrong = Fault("options_alike", f"expected options that differ, found {text[:80]!r} again")
        else:
            good.append(text)
            continue
        fault = fault or wrong
    if len(good) < most and fault is None:
        fault = Fault("option_count", f"expected {most} distractors, found {len(good)}")
    if fault is None and given_away([truth, *others, *good], 0):
        fault = Fault("longer_is_right", f"expected options about as long as {truth[:80]!r}")
    return good[:most], fault
