"""Assign pairs or clips to annotators with order and letters, by seeded hash, never by time."""

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeVar

from earmark.schemas.errors import InputError
from earmark.schemas.study import AnnotatorPage, Study, Trial
from earmark.tasks.importers.music import ListedGeneration, MusicPrompt

LETTERS = ("a", "b")
OTHER = {"a": "b", "b": "a"}
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


class Pair(NamedTuple):
    """Two generations of a prompt, by their ids in order."""

    prompt_id: str
    a: str
    b: str


Asked = tuple[str, Pair]  # the name of a page, and a pair on it
Clips = tuple[str, str]  # ids of A and B


class Known(NamedTuple):
    """A pair with known answers, by question."""

    pair: Pair
    expected: Mapping[str, str]


class TrialMaterial(NamedTuple):
    """Material for trials."""

    prompts: Mapping[str, MusicPrompt]  # by id
    generations: Mapping[str, ListedGeneration]  # by id; each playable, with its prompt in `prompts`
    digests: Mapping[str, str]  # SHA-256 of each generation's clip
    groups: Mapping[str, str]  # a prompt's group by its id
    uncertain: Collection[frozenset[str]]  # pairs with disagreement between a judge's orders
    known: Sequence[Known]  # pairs with known answers


def pages_of(study: Study, material: TrialMaterial, secret: bytes) -> tuple[AnnotatorPage, ...]:
    """Return the pages of a study; the same config, tables and secret give the same pages."""
    trials = _pair_trials(study, material) if study.kind == "pairs" else _rating_trials(study, material)
    return tuple(
        AnnotatorPage(
            name=name,
            key=hmac.new(secret, f"{study.name}/{name}".encode(), "sha256").hexdigest()[:32],
            trials=tuple(trials[name]),
        )
        for name in page_names(study.annotators)
        if trials.get(name)
    )


def chosen_pairs(study: Study, material: TrialMaterial) -> list[Pair]:
    """Return the pairs to judge, among pairs of generations of a prompt by different models.

    Each kind (pair of models, modality) gives a pair in turn, so that kinds are equally frequent as far as they go.
    """
    places = study.annotators * study.per_annotator // study.per_pair
    if study.pairs and study.pairs > places:
        raise InputError(
            f"pairs = {study.pairs} by per_pair = {study.per_pair} need {study.pairs * study.per_pair} places, and "
            f"{study.annotators} annotators by per_annotator = {study.per_annotator} have "
            f"{study.annotators * study.per_annotator}; raise annotators or per_annotator"
        )
    told = {frozenset((one.a, one.b)) for one in study.examples}  # annotators see their answers, or are checked by them
    told |= {frozenset((one.pair.a, one.pair.b)) for one in material.known}
    kinds: dict[object, list[Pair]] = defaultdict(list)
    for pair in _candidates(material):
        if frozenset((pair.a, pair.b)) in told:
            continue
        if study.choose != "uncertain" or frozenset((pair.a, pair.b)) in material.uncertain:
            kinds[_kind(study, material, pair)].append(pair)
    in_turn = []
    for pairs in kinds.values():
        pairs.sort(key=lambda pair: _draw(study, *pair))
        in_turn += [(turn, _draw(study, *pair), pair) for turn, pair in enumerate(pairs)]
    found = [pair for _, _, pair in sorted(in_turn)][: study.pairs or places]
    if not found or (study.pairs and len(found) < study.pairs):
        what = "pairs on which the judge's orders disagree" if study.choose == "uncertain" else "pairs of two models"
        raise InputError(f"generations: expected {study.pairs or 'some'} {what}, found {len(found)}")
    return found


def _candidates(material: TrialMaterial) -> Iterator[Pair]:
    by_prompt: dict[str, list[ListedGeneration]] = defaultdict(list)
    for generation in material.generations.values():
        by_prompt[generation.prompt_id].append(generation)
    for prompt_id, made in by_prompt.items():
        made.sort(key=lambda one: one.generation_id)
        for first, second in combinations(made, 2):
            pair = Pair(prompt_id, first.generation_id, second.generation_id)
            if first.conditioned_on != second.conditioned_on:
                continue  # their models had different inputs
            if first.model != second.model and material.digests[pair.a] != material.digests[pair.b]:
                yield pair


def _kind(study: Study, material: TrialMaterial, pair: Pair) -> object:
    if study.choose == "models":
        return frozenset((material.generations[pair.a].model, material.generations[pair.b].model))
    if study.choose == "modality":
        prompt, given = material.prompts[pair.prompt_id], material.generations[pair.a].conditioned_on
        return tuple(
            part is not None and (given is None or name in given.split("+"))
            for name, part in (("lyrics", prompt.lyrics), ("reference", prompt.reference_audio))
        )
    return None


def _pair_trials(study: Study, material: TrialMaterial) -> dict[str, list[Trial]]:
    pairs, names = chosen_pairs(study, material), page_names(study.annotators)
    mine = shared(pairs, names, study.per_pair, lambda name, pair: _draw(study, name, *pair))
    mine = {name: pairs for name, pairs in mine.items() if pairs}
    clips = _lettered(study, material, mine)
    return {name: _page_trials(study, name, pairs, material.known, clips) for name, pairs in mine.items()}


def _lettered(study: Study, material: TrialMaterial, mine: Mapping[str, Sequence[Pair]]) -> dict[Asked, Clips]:
    """Return the clips of each page's pairs as A and B.

    Each model of two is A in half of a page's pairs, in half of a pair's pages and in half of all; the better clip of
    known pairs likewise, so that one letter everywhere fails the checks.
    """

    def models(asked: Asked) -> tuple[str, ...]:
        return tuple(sorted(material.generations[clip].model for clip in asked[1][1:]))

    def draw(asked: Asked) -> str:
        return _digits(study, asked[0], "letters", *asked[1])

    pairs = [(name, pair) for name, of_page in mine.items() for pair in of_page]
    known = [(name, one.pair) for name in mine for one in material.known]
    turned = halved(pairs, draw, (lambda one: (one[0], models(one)), itemgetter(0)), (itemgetter(1), models))
    turned |= halved(known, draw, (itemgetter(0),), (itemgetter(1),))
    better = {one.pair: getattr(one.pair, next(iter(one.expected.values()))) for one in material.known}
    clips = {}
    for asked in (*pairs, *known):
        a, b = sorted(asked[1][1:], key=lambda clip: (clip != better.get(asked[1]), material.generations[clip].model))
        clips[asked] = (b, a) if asked in turned else (a, b)
    return clips


def _page_trials(
    study: Study, name: str, pairs: Sequence[Pair], known: Iterable[Known], clips: Mapping[Asked, Clips]
) -> list[Trial]:
    """Return the page's pairs in its own order, some of the first half again in the second, known ones anywhere."""
    order = sorted(pairs, key=lambda pair: _draw(study, name, "order", *pair))
    half = len(order) // 2
    placed = [(float(place), _trial(study, name, "pair", pair, clips)) for place, pair in enumerate(order)]
    repeats = 2 if study.checks.repeats is None else study.checks.repeats
    for pair in order[: min(repeats, half)]:
        place = half + (len(order) - half) * _draw(study, name, "again", *pair)
        placed.append((place, _trial(study, name, "repeat", pair, clips)))
    for one in known:
        place = len(order) * _draw(study, name, "known", *one.pair)
        placed.append((place, _trial(study, name, "known", one.pair, clips, one.expected)))
    return [trial for _, trial in sorted(placed, key=lambda entry: (entry[0], entry[1].id))]


def _trial(
    study: Study,
    name: str,
    kind: Literal["pair", "repeat", "known"],
    pair: Pair,
    clips: Mapping[Asked, Clips],
    expected: Mapping[str, str] | None = None,
) -> Trial:
    """Return a trial with its letters; a repeat swaps the first time's letters, and a known answer follows its clip."""
    ids = clips[name, pair][:: -1 if kind == "repeat" else 1]
    swapped = ids[0] != pair.a
    return Trial(
        id=_digits(study, name, kind, *pair),
        kind=kind,
        prompt_id=pair.prompt_id,
        clips=dict(zip(LETTERS, ids, strict=True)),
        expected={question: OTHER[value] if swapped else value for question, value in (expected or {}).items()},
    )


def _rating_trials(study: Study, material: TrialMaterial) -> dict[str, list[Trial]]:
    """Return for each annotator all systems' clips of a questionnaire's prompts, in an order of their own."""
    systems = {generation.model for generation in material.generations.values()}
    by_prompt: dict[str, list[ListedGeneration]] = defaultdict(list)
    for generation in material.generations.values():
        by_prompt[generation.prompt_id].append(generation)
    sets: list[list[ListedGeneration]] = [[] for _ in range(study.questionnaires)]
    for group, count in study.each.items():
        ids = sorted((i for i in material.prompts if material.groups.get(i) == group), key=lambda i: _draw(study, i))
        if len(ids) < count * len(sets):
            raise InputError(
                f"prompts: expected {count * len(sets)} of group '{group}' ({count} for each of {len(sets)} "
                f"questionnaires), found {len(ids)}"
            )
        for place, prompt_id in enumerate(ids[: count * len(sets)]):
            made = by_prompt[prompt_id]
            if missing := sorted(systems - {one.model for one in made}):
                raise InputError(f"generations: prompt {prompt_id} has none of system '{missing[0]}'")
            sets[place % len(sets)] += made
    trials = {}
    for number, name in enumerate(page_names(study.annotators)):
        mine = sorted(sets[number % len(sets)], key=lambda one: _draw(study, name, one.generation_id))
        half = len(mine) // 2
        again = mine[: min(study.checks.repeats or 0, half)]
        placed = [(float(place), _rating(study, name, "rating", one)) for place, one in enumerate(mine)]
        placed += [
            (half + (len(mine) - half) * _draw(study, name, "again", one.generation_id),
             _rating(study, name, "repeat", one)) for one in again
        ]  # fmt: skip
        trials[name] = [trial for _, trial in sorted(placed, key=lambda entry: (entry[0], entry[1].id))]
        if study.background:
            first = Trial(id=_digits(study, name, "background"), kind="background", prompt_id="")
            trials[name].insert(0, first)
    return trials


def _rating(study: Study, name: str, kind: Literal["rating", "repeat"], one: ListedGeneration) -> Trial:
    again = ["again"] if kind == "repeat" else []
    clips = {"a": one.generation_id}
    return Trial(id=_digits(study, name, *again, one.generation_id), kind=kind, prompt_id=one.prompt_id, clips=clips)


def page_names(count: int) -> list[str]:
    """Return the names of the pages."""
    return [f"p{number:03d}" for number in range(1, count + 1)]


def shared(
    items: Iterable[Item], names: Sequence[str], each: int, draw: Callable[[str, Item], Any]
) -> dict[str, list[Item]]:
    """Return the items of each page; each item goes to the `each` emptiest pages.

    Args:
        draw: decides between equally full pages.
    """
    mine: dict[str, list[Item]] = {name: [] for name in names}
    for item in items:
        for name in sorted(names, key=lambda name: (len(mine[name]), draw(name, item)))[:each]:
            mine[name].append(item)
    return mine


def halved(items: Iterable[Key], draw: Callable[[Key], str], *families: Sequence[Callable[[Key], object]]) -> set[Key]:
    """Return half of the items, and of each group half too, give or take one.

    Args:
        draw: decides which half, by hexadecimal digits.
        families: at most two; each the groups of an item, from narrow ones to wider ones that contain them.
    """
    order = sorted(items, key=draw)
    opposites: list[dict[Key, Key]] = []  # two items of one group; of both families, rings of an even length and rows
    for family in families:
        opposite: dict[Key, Key] = {}
        wider: list[Callable[[Key], object]] = [*family, lambda _: None]
        for group in wider:
            waiting: dict[object, Key] = {}
            for item in [item for item in order if item not in opposite]:
                if (other := waiting.pop(group(item), None)) is None:
                    waiting[group(item)] = item
                else:
                    opposite |= {item: other, other: item}
        opposites.append(opposite)
    chosen: dict[Key, bool] = {}
    for item in order:
        reached = [(item, draw(item)[-1] < "8")]  # not the first digit, which is in order
        while reached:
            one, side = reached.pop()
            if one not in chosen:
                chosen[one] = side
                reached += [(opposite[one], not side) for opposite in opposites if one in opposite]
    return {item for item, side in chosen.items() if side}


def _digits(study: Study, *parts: str) -> str:
    return hashlib.sha256("\0".join((str(study.seed), study.name, *parts)).encode()).hexdigest()[:16]


def _draw(study: Study, *parts: str) -> float:
    """Return a number from 0 to 1 derived from the seed and the parts alone."""
    return int(_digits(study, "draw", *parts), 16) / 2**64
