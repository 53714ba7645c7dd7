"""Give clips rewards for a trainer: by a scorer, or by a judge's answers to a corpus's question; through the ledger."""

from __future__ import annotations

import hashlib
import tempfile
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypedDict

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import ConfigError, InputError
from earmark.schemas.evaluations import Examinee, Scorer
from earmark.schemas.files import read_regular
from earmark.schemas.questions import Audio
from earmark.tasks.annotation.prompts import own_words, prompt_names
from earmark.tasks.annotation.scorer import ScorerInput
from earmark.tasks.annotation.session import Session
from earmark.tasks.evaluation.asking import Questioner
from earmark.tasks.evaluation.kinds import find_kind
from earmark.tasks.evaluation.samples import MeasurementOptions, find_evaluation, find_mode
from earmark.tasks.evaluation.scorers import scored
from earmark.tasks.exports.clips import ClipFile
from earmark.tasks.pipeline.media import length_s
from earmark.tasks.pipeline.scoring import scorer_requests
from earmark.tasks.pipeline.sessions import open_session
from earmark.tasks.store.versions import Store

Item = Mapping[str, Any]
CLIPS = ("audio", "reference", "a_audio", "b_audio")  # keys of an item's clips
KEYS = {"clip_audio": "audio", "reference_audio": "reference"}
"""Columns of questions with other keys in items."""
OPTIONAL = {"language": "en", "lyrics": None, "reference_audio": None}


class GivenReward(TypedDict):
    """Reward of an item, or the reason for its absence."""

    reward: float | None
    scores: Mapping[str, float | None]
    reason: str | None
    detail: str | None


class Rewarder(Protocol):
    """Scorer or judge that gives rewards."""

    def rewards(self, items: Sequence[Item], folder: Path) -> list[GivenReward]:
        """Return `reward` of each item, with its `scores`; without one null, `reason` and `detail`.

        Args:
            items: what is asked about, clips as `Audio`.
            folder: for files about the items.

        Raises:
            InputError: an item lacks what is asked about.
        """


class ScorerRewarder:
    """Rewards by a score of a scorer; less is better of `lower` scores."""

    def __init__(self, scorer: Scorer, score: str | None, session: Session) -> None:
        self._scorer, self._session = scorer, session
        self._score = score or (scorer.scores[0] if len(scorer.scores) == 1 else "")
        if self._score not in scorer.scores:
            raise ConfigError(f"--reward: expected one of the scorer's scores: {', '.join(scorer.scores)}")

    def rewards(self, items: Sequence[Item], folder: Path) -> list[GivenReward]:
        """Score the clips."""
        words = [name for name in ("text", "lyrics") if name in self._scorer.takes]
        _require(items, ["audio", *words])
        inputs = [ScorerInput(one["audio"], one.get("text"), one.get("lyrics"), one.get("reference")) for one in items]
        sign = -1 if self._score in self._scorer.lower else 1
        given: list[GivenReward] = []
        for outcome in self._session.ask(scorer_requests(inputs, self._scorer)).outcomes:
            numbers = {one.name: one for one in scored(outcome, self._scorer)}
            one, scores = numbers[self._score], {name: score.value for name, score in numbers.items()}
            value = None if one.value is None else sign * one.value
            given.append({"reward": value, "scores": scores, "reason": one.reason, "detail": one.detail})
        return given


class JudgeRewarder:
    """Rewards by a judge: its probability of yes, the mean over the items of a rubric, or its rating.

    Raises:
        ConfigError: the question compares clips.
    """

    def __init__(self, corpus: Corpus, wish: MeasurementOptions, config: Examinee, session: Session) -> None:
        evaluation = find_evaluation(corpus, wish.evaluation)
        compares = find_kind(evaluation.kind).compares
        alone = next((one.name for one in evaluation.modes if not compares or one.each), None)
        mode = find_mode(evaluation, wish.mode or alone)
        if mode.each is not None:  # rates each clip of a pair by itself
            evaluation = replace(evaluation, kind="scalar")
            mode = replace(mode, each=None, shows=(*mode.shows, f"{mode.each}=audio"))
        if not find_kind(evaluation.kind).scored:
            raise ConfigError(
                f"mode '{mode.name}' of '{evaluation.name}' rates no clip by itself: choose another --mode"
            )
        self._question, self._config, self._session = (evaluation, mode), config, session

    def rewards(self, items: Sequence[Item], folder: Path) -> list[GivenReward]:
        """Ask the judge about each item."""
        heard = [one for item in items for one in item.values() if isinstance(one, Audio)]
        files = {one.sha256: ClipFile(Path(one.path), length_s(Path(one.path))) for one in heard}
        questioner = Questioner(*self._question, self._config, files, folder)
        used, mode = [KEYS.get(name, name) for name in questioner.columns if name != "id"], self._question[1]
        _require(items, used, mode.items)
        groups = []
        with own_words(self._config.own_prompts()):
            for place, item in enumerate(items):
                values = {name: one.sha256 if isinstance(one, Audio) else one for name, one in item.items()
                          if one is not None}  # fmt: skip
                language = str(values.get("language", OPTIONAL["language"]))
                if mode.prompt.format(language=language) not in prompt_names():
                    raise InputError(f"item {place}: language: no prompt asks in {language[:80]!r}")
                columns = {name: values[key] for name, key in KEYS.items() if key in values}
                groups.append(questioner.requests({**OPTIONAL, **values, **columns}))
        outcomes = iter(self._session.ask([one.request for group in groups for one in group]).outcomes)
        given: list[GivenReward] = []
        for group in groups:
            one = questioner.read("", group, [next(outcomes) for _ in group])
            scores = {item["item"]: item["score"] for item in one.items}
            given.append({"reward": one.score, "scores": scores, "reason": one.reason, "detail": one.detail})
        return given


@contextmanager
def scorer_rewarder(scorer: Scorer, score: str | None, store: Store) -> Iterator[Rewarder]:
    """Open a scorer for rewards."""
    with open_session(store, scorer) as session:
        yield ScorerRewarder(scorer, score, session)


@contextmanager
def judge_rewarder(corpus: Corpus, wish: MeasurementOptions, config: Examinee, store: Store) -> Iterator[Rewarder]:
    """Open a judge for rewards by a corpus's question; without a mode, the first that rates a clip by itself."""
    with open_session(store, config) as session:
        yield JudgeRewarder(corpus, wish, config, session)


def reward(rewarder: Rewarder, items: Any, roots: Sequence[Path]) -> list[GivenReward]:
    """Return the rewards of a batch; clips in base64 lie in a folder of their own meanwhile.

    Args:
        roots: folders for paths of clips; other files are refused.

    Raises:
        InputError: no list of objects, a clip cannot be used, or an item lacks what is asked about.
        StopRun: a fault of every request, or the budget's end.
    """
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InputError("expected a list of objects as items")
    with tempfile.TemporaryDirectory(prefix="earmark-") as temporary:
        folder = Path(temporary)
        placed = [
            {name: _placed(f"item {place}: {name}", one, folder, roots) if name in CLIPS and one is not None else one
             for name, one in item.items()}
            for place, item in enumerate(items)
        ]  # fmt: skip
        return rewarder.rewards(placed, folder) if placed else []


def _placed(where: str, given: Any, folder: Path, roots: Sequence[Path]) -> Audio:
    """Return a clip of a path below a root, or write one in base64 to a folder."""
    try:
        if isinstance(given, str):
            path = Path(given).resolve()
            if not any(path.is_relative_to(root.resolve()) for root in roots):
                raise InputError(f"{where}: expected a file below --audio-root, found {given[:200]!r}")
            return Audio(hashlib.sha256(read_regular(path)).hexdigest(), str(path))
        content, ending = b64decode(given["data"], validate=True), str(given["format"])
    except OSError as error:
        raise InputError(f"{where}: {str(given)[:200]!r}: {error.strerror}") from None
    except (TypeError, KeyError, ValueError):
        raise InputError(f'{where}: expected a path or {{"data": <base64>, "format": "wav"}}') from None
    sha256 = hashlib.sha256(content).hexdigest()
    path = folder / f"{sha256}.{ending if ending.isalnum() and len(ending) < 9 else 'wav'}"
    path.write_bytes(content)
    return Audio(sha256, str(path))


def _require(items: Sequence[Item], names: Sequence[str], listed: str | None = None) -> None:
    """Refuse an item that lacks what is asked about, or whose words are no text; those of `listed` are in a list."""
    needed = [name for name in names if name not in (*OPTIONAL, "reference")]
    for place, item in enumerate(items):
        if lacking := next((name for name in needed if item.get(name) is None), None):
            raise InputError(f"item {place}: expected {', '.join(needed)}, found none of '{lacking}'")
        for name in names:
            value = item.get(name)
            if value is None or name in CLIPS:
                continue
            texts, form = (value, "a list of texts") if name == listed else ([value], "text")
            if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
                raise InputError(f"item {place}: {name}: expected {form}, found {repr(value)[:80]}")
