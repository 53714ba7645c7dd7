"""Who hears what: rules that hold for any study, checked on what the pages hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.schemas.errors import InputError
from earmark.schemas.study import AnnotatorPage, AttentionChecks, Study
from earmark.tasks.importers.music import ListedGeneration, MusicPrompt
from earmark.tasks.people.choosing import Known, Pair, TrialMaterial, pages_of

SECRET = b"for tests"
QUALITY = [{"name": "quality", "text": "How good is it?"}]


def material(prompts: int, models: int, *, known: int = 0, groups: tuple[str, ...] = ("id",)) -> TrialMaterial:
    made = {
        f"g{p}-{m}": ListedGeneration(f"g{p}-{m}", f"p{p}", f"m{m}", f"{p}-{m}.wav", "generations.csv", 2)
        for p in range(prompts)
        for m in range(models)
    }
    return TrialMaterial(
        prompts={f"p{p}": MusicPrompt(f"p{p}", f"prompt {p}", None, None, "prompts.csv", 2) for p in range(prompts)},
        generations=made,
        digests={name: f"digest of {name}" for name in made},
        groups={f"p{p}": groups[p % len(groups)] for p in range(prompts)},
        uncertain=(),
        known=[Known(Pair(f"p{p}", f"g{p}-0", f"g{p}-1"), {"musicality": "a"}) for p in range(known)],
    )


def study(**values: object) -> Study:
    return Study.model_validate({"name": "s", "prompts": "p.csv", "generations": "g.csv", "annotators": 4, **values})


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.integers(3, 8),
    models=st.integers(2, 5),
    annotators=st.integers(1, 9),
    per_pair=st.integers(1, 3),
    repeats=st.integers(0, 4),
    known=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_pages(prompts: int, models: int, annotators: int, per_pair: int, repeats: int, known: int, seed: int) -> None:
    if per_pair > annotators:
        return
    config = study(
        annotators=annotators, per_pair=per_pair, per_annotator=12, seed=seed, checks=AttentionChecks(repeats=repeats)
    )
    pages = pages_of(config, material(prompts, models, known=known), SECRET)
    asked: dict[frozenset[str], set[str]] = defaultdict(set)
    for page in pages:
        kinds = Counter(trial.kind for trial in page.trials)
        assert kinds["pair"] <= 12
        assert kinds["known"] == known
        assert kinds["repeat"] == min(repeats, kinds["pair"] // 2)
        assert len({trial.id for trial in page.trials}) == len(page.trials)
        for trial in page.trials:
            assert len({clip.split("-")[0] for clip in trial.clips.values()}) == 1, "clips of two prompts"
            if trial.kind == "pair":
                asked[frozenset(trial.clips.values())].add(page.name)
        _repeats_are_swapped(page)
        for trial in page.trials:
            if trial.kind == "known":
                assert trial.clips[trial.expected["musicality"]].endswith("-0"), "the known answer lost its clip"
    assert all(len(names) == per_pair for names in asked.values())
    loads = [sum(trial.kind == "pair" for trial in page.trials) for page in pages]
    assert max(loads) - min(loads) <= per_pair
    assert pages == pages_of(config, material(prompts, models, known=known), SECRET)


def _repeats_are_swapped(page: AnnotatorPage) -> None:
    first = {
        frozenset(trial.clips.values()): (place, trial)
        for place, trial in enumerate(page.trials)
        if trial.kind == "pair"
    }
    for place, trial in enumerate(page.trials):
        if trial.kind == "repeat":
            before, one = first[frozenset(trial.clips.values())]
            assert before < place
            assert trial.clips == {"a": one.clips["b"], "b": one.clips["a"]}


def test_pairs_of_models_are_equally_frequent() -> None:
    pages = pages_of(study(pairs=60, per_pair=1, annotators=6, per_annotator=10), material(20, 4), SECRET)
    kinds = Counter(
        frozenset(clip.split("-")[1] for clip in trial.clips.values())
        for page in pages
        for trial in page.trials
        if trial.kind == "pair"
    )
    assert sorted(kinds.values()) == [10] * 6


def test_letters_do_not_lean() -> None:
    pages = pages_of(study(annotators=40, per_annotator=30, per_pair=4), material(100, 3), SECRET)
    first = [trial.clips["a"] < trial.clips["b"] for page in pages for trial in page.trials if trial.kind == "pair"]
    assert len(first) == 1200
    assert abs(sum(first) / len(first) - 0.5) < 4 * 0.5 / len(first) ** 0.5  # four standard errors of a fair coin


def test_questionnaires_of_attm() -> None:
    """Five questionnaires of one prompt out of and four in distribution, by seven systems: 35 clips each."""
    config = study(kind="ratings", annotators=10, questions=[{"name": "quality", "text": "How good is it?"}])
    groups = ("ood", "id", "id", "id", "id")
    pages = pages_of(config, material(40, 7, groups=groups), SECRET)
    by_set: dict[frozenset[str], int] = Counter()
    for page in pages:
        assert len(page.trials) == 35
        prompts = {trial.prompt_id for trial in page.trials}
        assert Counter(groups[int(name[1:]) % 5] for name in prompts) == {"ood": 1, "id": 4}
        assert Counter(trial.clips["a"].split("-")[1] for trial in page.trials) == {str(m): 5 for m in range(7)}
        by_set[frozenset(prompts)] += 1
    assert sorted(by_set.values()) == [2] * 5
    assert not any(one & other for one, other in pairwise(by_set)), "a prompt stands in two questionnaires"
    orders = {tuple(trial.clips["a"] for trial in page.trials) for page in pages}
    assert len(orders) == 10, "two annotators hear the clips in the same order"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"pairs": 100},
            "pairs = 100 by per_pair = 2 need 200 places, and 4 annotators by per_annotator = 40 have 160",
        ),
        ({"pairs": 30, "per_annotator": 40}, "expected 30 pairs of two models, found 6"),
        (
            {"kind": "ratings", "questions": QUALITY},
            "expected 5 of group 'ood' (1 for each of 5 questionnaires), found 0",
        ),
    ],
)
def test_too_little(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as fault:
        pages_of(study(**values), material(2, 3), SECRET)
    assert message in str(fault.value)


def test_a_system_without_a_clip_is_named() -> None:
    stuff = material(10, 3, groups=("ood", "id", "id", "id", "id"))
    lacking = {name: one for name, one in stuff.generations.items() if name != "g0-2"}
    with pytest.raises(InputError, match="prompt p0 has none of system 'm2'"):
        pages_of(
            study(kind="ratings", questionnaires=2, questions=QUALITY), stuff._replace(generations=lacking), SECRET
        )


def test_a_clip_is_not_compared_with_itself() -> None:
    stuff = material(1, 2)
    with pytest.raises(InputError, match="expected some pairs of two models, found 0"):
        pages_of(study(), stuff._replace(digests=dict.fromkeys(stuff.generations, "the same bytes")), SECRET)


def test_what_is_known_or_shown_is_no_vote() -> None:
    """An example is shown with its answer, and a known pair checks who answers: neither is drawn as a pair."""
    stuff = material(3, 3, known=2)
    config = study(examples=[{"a": "g2-0", "b": "g2-2", "says": "Because."}])
    for seed in range(20):
        pages = pages_of(config.model_copy(update={"seed": seed}), stuff, SECRET)
        drawn = {frozenset(trial.clips.values()) for page in pages for trial in page.trials if trial.kind == "pair"}
        assert len(drawn) == 3 * 3 - 3
        assert not drawn & {frozenset(("g0-0", "g0-1")), frozenset(("g1-0", "g1-1")), frozenset(("g2-0", "g2-2"))}


def test_only_clips_that_were_asked_for_the_same_are_compared() -> None:
    stuff = material(1, 3)
    made = {**stuff.generations, "g0-2": stuff.generations["g0-2"]._replace(conditioned_on="text")}
    pages = pages_of(study(), stuff._replace(generations=made), SECRET)
    assert {frozenset(t.clips.values()) for page in pages for t in page.trials} == {frozenset(("g0-0", "g0-1"))}


def test_a_study_asks_what_its_kind_asks() -> None:
    assert [one.name for one in study(kind="ratings", annotators=1).questions] == [
        "fidelity", "adherence", "musicality", "overall"
    ]  # fmt: skip
    assert [one.name for one in study().questions] == ["alignment", "musicality"]
    scored = Study.model_validate({"name": "s", "annotators": 4, "scored_in": "music-prompts@v1"})
    assert (scored.kind, scored.background, scored.each) == (
        "ratings", True, {"ood strict": 1, "id strict": 2, "id improvised": 2}
    )  # fmt: skip
    for wrong, said in (
        ({"scored_in": "music-prompts"}, "expected 'prompts' and 'generations', or 'scored_in'"),
        ({"background": True}, "'background' and 'scored_in' are of ratings"),
        ({"finalists": 3}, "go with 'scored_in'"),
    ):
        with pytest.raises(ValueError, match=said):
            study(**wrong)


def test_repeated_ratings_come_later_and_the_background_first() -> None:
    """A clip of the first half of a page comes again in the second."""
    checks = AttentionChecks(repeats=3)
    config = study(kind="ratings", annotators=6, background=True, checks=checks)
    for page in pages_of(config, material(40, 7, groups=("ood", "id", "id", "id", "id")), SECRET):
        assert [trial.kind for trial in page.trials].index("background") == 0
        assert Counter(trial.kind for trial in page.items) == {"rating": 35, "repeat": 3}
        firsts = {trial.clips["a"]: place for place, trial in enumerate(page.trials) if trial.kind == "rating"}
        for place, trial in enumerate(page.trials):
            if trial.kind == "repeat":
                assert firsts[trial.clips["a"]] <= 17 < place


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.integers(3, 12),
    models=st.integers(2, 5),
    annotators=st.integers(1, 9),
    per_pair=st.integers(1, 4),
    known=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_each_side_is_the_first_in_half(
    prompts: int, models: int, annotators: int, per_pair: int, known: int, seed: int
) -> None:
    """It is so by page, by pair, by two models and in all; the better clip of known pairs is A on half of the pages."""
    if per_pair > annotators:
        return
    config = study(annotators=annotators, per_pair=per_pair, per_annotator=20, seed=seed)
    first: dict[object, list[bool]] = defaultdict(list)
    for page in pages_of(config, material(prompts, models, known=known), SECRET):
        for trial in page.trials:
            a, b = (trial.clips[letter].split("-")[1] for letter in "ab")
            groups: list[object] = []
            if trial.kind == "pair":
                both = frozenset((a, b))
                groups = [page.name, (page.name, both), frozenset(trial.clips.values()), both, "all"]
            elif trial.kind == "known":
                groups = [("known", page.name), ("known", trial.prompt_id), "all known"]
            for group in groups:
                first[group].append(a < b)
    for group, turns in first.items():
        assert abs(2 * sum(turns) - len(turns)) <= 1, group


def test_the_seed_draws_which_side_is_the_first() -> None:
    firsts = [
        pages_of(study(annotators=1, per_pair=1, pairs=1, seed=seed), material(1, 2), SECRET) for seed in range(40)
    ]
    assert 10 <= sum(pages[0].trials[0].clips["a"] == "g0-0" for pages in firsts) <= 30
