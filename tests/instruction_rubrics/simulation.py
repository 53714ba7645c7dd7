"""A world whose clips are known, and models with known faults: how many item labels of a build are wrong.

    .venv/bin/python -m tests.instruction_rubrics.simulation [--clips 60 --only mix | --rows 7920]

prints the table of `tests/benchmarks/RESULTS.md`; with `--rows` of the bench preset's subsets, in its shares and in
both languages (7,920 is its full size), by models with the faults of the last setting but one. A clip has a value for
each attribute of its domain, which its captions name, all or some of them; generated clips miss what was asked for.
The writer's changes are at times none in other words, or change more than they say; the judge errs about whole
instructions and about items, the labeller about items. Whether a label is right is counted from the clips alone;
nothing of the build says it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from earmark.schemas.questions import Audio
from earmark.tasks.annotation.request import Answer, Outcome, Request
from earmark.tasks.instruction_rubrics.attributes import ADDED, BY_DOMAIN, BY_READING
from earmark.tasks.store.versions import Version
from tests.builds import rows_of
from tests.conftest import ROOT
from tests.instruction_rubrics.rubrics import build_rubrics, config_of, write_captions
from tests.runner import scripted

VALUES = ("red", "blue", "green", "amber", "violet", "silver")
SAME = "rather "  # a word that changes nothing
MISSED = 0.4  # of generated clips, those that do not do what was asked for
Source = tuple[str, str, dict[str, Any]]
PRESET = ROOT / "deploy/configs/instruction-rubrics-bench.toml"
SPARE = 1.5
SOURCES: tuple[Source, ...] = (
    ("speech", "speech", {}),
    ("sound", "sound", {"describes": "partly"}),
    ("music", "music", {}),
    ("music-gen", "music", {"generated": True}),
    ("mix", "mixed", {"describes": "partly"}),
)


class Faults(NamedTuple):
    """How often who is wrong.

    Attributes:
        labeller: of items that a reader labels.
        hearing: of items that the judge hears.
        whole: of whole instructions that the judge hears.
        reworded: of changes, those that say the same in other words.
        slips: of changes, those that change more than they say.
    """

    labeller: float = 0.0
    hearing: float = 0.0
    whole: float = 0.0
    reworded: float = 0.0
    slips: float = 0.0


SETTINGS = (
    Faults(),
    Faults(whole=0.1, reworded=0.1, slips=0.2),
    Faults(labeller=0.02, hearing=0.05, whole=0.1, reworded=0.1, slips=0.2),
    Faults(labeller=0.05, hearing=0.1, whole=0.2, reworded=0.2, slips=0.2),
    Faults(labeller=0.1, hearing=0.2, whole=0.3, reworded=0.2, slips=0.2),
)


def draw(*words: object) -> float:
    """A number from 0 to 1 of these words' own."""
    text = "\n".join(map(str, words))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / 2**56


def dimensions(domain: str) -> list[str]:
    """What a clip of a domain has a value of."""
    return [name for name in BY_DOMAIN[domain] if name not in BY_READING][:5]


def clauses(text: str) -> dict[str, str]:
    """The values that a text names."""
    parts = [part.strip(" .?").removeprefix("Is it so: ").removeprefix("the ") for part in text.split(",")]
    named = (part.partition(" is ") for part in parts if " is " in part)
    return {name: value.removeprefix(SAME) for name, _, value in named}


def written(values: Mapping[str, str]) -> str:
    """A text that names values."""
    return ", ".join(f"the {name} is {value}" for name, value in values.items())


class World:
    """Clips of all sources with their captions, in a folder.

    Args:
        folder: where to write them.
        clips: how many of each source; one number is for all.
        sources: what they are.

    Attributes:
        folder: of the clips and lists.
        truth: what is heard in each clip, by its SHA-256.
        sources: of the config.
    """

    def __init__(self, folder: Path, *clips: int, sources: Iterable[Source] = SOURCES) -> None:
        self.folder = folder
        self.truth: dict[str, dict[str, str]] = {}
        self.sources: list[dict[str, Any]] = []
        first = 0
        sources = tuple(sources)
        for (name, domain, facts), count in zip(sources, clips if clips[1:] else clips * len(sources), strict=True):
            made = [self._clip(first + number, domain, facts) for number in range(count)]
            texts = [written(caption) for caption, _ in made]
            self.sources.append({**write_captions(folder, name, texts, first, **facts), "domain": domain})
            for number, (_, values) in enumerate(made, first):
                self.truth[hashlib.sha256((folder / f"{number}.wav").read_bytes()).hexdigest()] = values
            first += count

    def _clip(self, number: int, domain: str, facts: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
        names = dimensions(domain)
        values = {name: VALUES[int(draw("value", number, name) * 6)] for name in names}
        named = sorted(names, key=lambda name: draw("named", number, name))[: 3 if "describes" in facts else 5]
        caption = {name: values[name] for name in named}
        if facts.get("generated") and draw("missed", number) < MISSED:
            values = {**values, named[0]: self.other(values[named[0]], number)}
        return caption, values

    @staticmethod
    def other(value: str, *seed: object) -> str:
        others = [one for one in VALUES if one != value]
        return others[int(draw("other", *seed) * len(others))]

    def holds(self, clip_sha256: str, text: str) -> bool:
        """Whether all that a text names is so in a clip: what is not known of a domain is not there."""
        return all(self.truth[clip_sha256].get(name) == value for name, value in clauses(text).items())

    def answer(self, faults: Faults, request: Request) -> Outcome:
        """What a model with these faults says."""
        facts, key = json.loads(request.facts), request.key
        value = getattr(self, "_" + facts["ask"].replace("-", "_"))(faults, request, facts)
        return Answer(key, value)

    def _verify(self, faults: Faults, request: Request, facts: Mapping[str, Any]) -> dict[str, str]:
        clip = next(part.sha256 for part in request.parts() if isinstance(part, Audio))
        fits = self.holds(clip, facts["instruction"]) != (draw(request.key) < faults.whole)
        asked = clauses(facts["instruction"])
        wrong = {name: self.truth[clip].get(name, "none") for name in asked}
        differs = {name: value for name, value in wrong.items() if value != asked[name]}
        return {"answer": "yes" if fits else "no", "evidence": written(differs or wrong)}

    def _mismatch(self, faults: Faults, request: Request, facts: Mapping[str, Any]) -> dict[str, str]:
        said = self._verify(faults, request, facts)
        return {**said, "answer": {"yes": "no", "no": "yes"}[said["answer"]]}

    def _perturb(self, faults: Faults, request: Request, facts: Mapping[str, Any]) -> dict[str, Any]:
        caption = facts["caption"]
        named = clauses(caption)
        name = next((one["name"] for one in facts["attributes"] if one["name"] in named), None)
        if name is None:
            before = caption.rpartition(", ")[2]
            after = f"{before}, the {ADDED} is {VALUES[0]}"
            value = {"attribute": ADDED, "before": before, "after": after, "also": []}
            return {**value, "caption": caption.removesuffix(before) + after}
        same = draw(request.key, "reworded") < faults.reworded
        other = SAME + named[name] if same else self.other(named[name], request.key)
        before, after = f"the {name} is {named[name]}", f"the {name} is {other}"
        changed = caption.replace(before, after)
        slips = draw(request.key, "slip") < faults.slips
        return {"attribute": name, "before": before, "after": after, "also": [],
                "caption": changed + " and more" if slips else changed}  # fmt: skip

    def _decompose(self, faults: Faults, request: Request, facts: Mapping[str, Any]) -> dict[str, Any]:
        parts = facts["instruction"].split(", ")
        return {"items": [{"dimension": "words", "question": f"Is it so: {one}?", "basis": one} for one in parts]}

    def _filter(self, faults: Faults, request: Request, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {"items": [{"id": item["id"], "verdict": "keep"} for item in facts["items"]]}

    def _rationales(self, faults: Faults, request: Request, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {"items": [{"id": item["id"], "rationale": "It says so."} for item in facts["items"]]}

    def _labels(self, faults: Faults, request: Request, facts: Mapping[str, Any]) -> dict[str, Any]:
        return self._read_items(faults, request, facts, missing="no")

    def _labels_partly(self, faults: Faults, request: Request, facts: Mapping[str, Any]) -> dict[str, Any]:
        return self._read_items(faults, request, facts, missing="unknown")

    def _read_items(
        self, faults: Faults, request: Request, facts: Mapping[str, Any], missing: str
    ) -> dict[str, list[dict[str, Any]]]:
        known = clauses(facts["truth"])

        def say(item: Mapping[str, Any]) -> str:
            ((name, value),) = clauses(item["question"]).items()
            if name not in known and missing == "unknown":
                return missing
            return _flipped(known.get(name) == value, draw(request.key, item["id"]) < faults.labeller)

        return {"items": [{"id": one["id"], "answer": say(one), "rationale": "Compared."} for one in facts["items"]]}

    def _hear(self, faults: Faults, request: Request, facts: Mapping[str, Any]) -> dict[str, Any]:
        clip = next(part.sha256 for part in request.parts() if isinstance(part, Audio))
        return {
            "items": [
                {"id": item["id"], "rationale": "Heard.", "answer": _flipped(
                    self.holds(clip, item["question"]), draw(request.key, item["id"]) < faults.hearing)}
                for item in facts["items"]
            ]
        }  # fmt: skip

    def _translate(self, faults: Faults, request: Request, facts: Mapping[str, Any]) -> dict[str, list[str]]:
        return {"texts": [f"译文：{text}" for text in facts["texts"]]}


def _flipped(value: bool, wrong: bool) -> str:
    return "yes" if value != wrong else "no"


class Counted(NamedTuple):
    """Labels of one domain and kind.

    Attributes:
        labels: how many.
        wrong: how many of them are.
        expected: how many are by theory.
        sigma: the standard error of that.
    """

    labels: int
    wrong: int
    expected: float
    sigma: float


def build(world: World, faults: Faults, **values: Any) -> dict[tuple[str, str], Counted]:
    """The labels of a build over the world by models with these faults; see `measured`.

    Args:
        world: the clips.
        faults: of the models.
        values: more of the config.
    """
    models = {
        "judge": {"annotator": "openai:hears", "most_failed": 1.0},
        "writer": {"annotator": "openai:writes", "most_failed": 1.0},
        "labeller": {"annotator": "openai:labels", "most_failed": 1.0},
    }
    config = config_of(
        world.folder, *world.sources,
        **{"bench_share": 0.0, "languages": ["en"], **models, **values},
    )  # fmt: skip
    near = ("choosing", "pairs", "leakage")  # texts of one vocabulary are no near-duplicates here
    with ExitStack() as stack:
        for module in near:
            stack.enter_context(patch(f"earmark.tasks.instruction_rubrics.{module}.NEAR_CAPTIONS", 1.0))
        store = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(scripted(lambda request: world.answer(faults, request)))
        return measured(build_rubrics(config, Path(store)), world, faults)


def measured(version: Version, world: World, faults: Faults) -> dict[tuple[str, str], Counted]:
    """Labels by domain and kind, counted against the clips, and what theory expects of the same samples.

    A label of a negative is wrong at the rate e of who gave it, by itself. A negative is kept unless all its k labels
    come out yes, which happens at a rate P: the m items that are not met are missed, and no other is. So of k labels
    (sum of e - m P) / (1 - P) are wrong in those that are kept. Of a positive none is: its caption is true; but for a
    generated clip that missed one detail, which the judge let pass twice.
    """
    questions = {(row["instruction_id"], row["item"]): row["question"] for row in rows_of(version, "items")
                 if row["language"] == "en"}  # fmt: skip
    by_sample: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in (row for row in rows_of(version, "labels") if row["language"] == "en"):
        by_sample[row["sample_id"]].append(row)
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
    for sample in (row for row in rows_of(version, "samples") if row["language"] == "en"):
        rows = by_sample[sample["sample_id"]]
        truth = [world.holds(row["clip_sha256"], questions[sample["instruction_id"], row["item"]]) for row in rows]
        total = sums[sample["domain"], sample["kind"]]
        total[0] += len(rows)
        total[1] += sum(row["answer"] != true for row, true in zip(rows, truth, strict=True))
        if not sample["follows"]:
            rates = [faults.hearing if row["labelled_by"] == "openai:hears" else faults.labeller for row in rows]
            missed = math.prod(1 - rate if true else rate for rate, true in zip(rates, truth, strict=True))
            total[2] += (sum(rates) - truth.count(False) * missed) / (1 - missed) if missed < 1 else 0.0
            total[3] += sum(rate * (1 - rate) for rate in rates)
        elif sample["subset"].endswith("-gen"):
            passed, right = MISSED * faults.whole**2, (1 - MISSED) * (1 - faults.whole) ** 2
            total[2] += passed / (passed + right)
            total[3] += passed * right / (passed + right) ** 2
    return {key: Counted(int(n), int(wrong), e, math.sqrt(v)) for key, (n, wrong, e, v) in sorted(sums.items())}


def table(results: Iterable[tuple[Faults, Mapping[tuple[str, str], Counted]]]) -> str:
    lines = ["| labeller, hearing, whole, reworded, slips | domain | kind | labels | wrong | expected | sigmas |",
             "|---|---|---|---:|---:|---:|---:|"]  # fmt: skip
    for faults, counts in results:
        rates = ", ".join(f"{rate:g}" for rate in faults)
        for (domain, kind), one in counts.items():
            share, expected = one.wrong / one.labels, one.expected / one.labels
            lines.append(f"| {rates} | {domain} | {kind} | {one.labels:,} | {share:.2%} | {expected:.2%} | "
                         f"{(one.wrong - one.expected) / one.sigma if one.sigma else 0:+.1f} |")  # fmt: skip
    return "\n".join(lines)


def bench(folder: Path, rows: int) -> tuple[int, Mapping[tuple[str, str], Counted]]:
    """A build of the bench preset's subsets, scaled to about so many samples a language; their number, and labels."""
    preset = tomllib.loads(PRESET.read_text("utf-8"))
    whole = sum(preset["counts"]["test"].values())
    counts = {name: round(count * rows / whole / 2) * 2 for name, count in preset["counts"]["test"].items()}
    first = {source["subset"]: source for source in reversed(preset["sources"])}
    facts = {name: {"generated": True} if source.get("generated") else {} for name, source in first.items()}
    for name in ("sound-real", "mix"):
        facts[name]["describes"] = "partly"
    sources = [(name, first[name]["domain"], {**facts[name], "set": "test"}) for name in counts]
    clips = [round(count * SPARE) + 12 if facts[name].get("generated") else round(count / 2 * SPARE) + 12
             for name, count in counts.items()]  # fmt: skip
    world = World(folder, *clips, sources=sources)
    return sum(counts.values()), build(world, SETTINGS[-2], counts={"test": counts}, languages=["en", "zh"])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=60, help="of each of the five sources")
    parser.add_argument("--rows", type=int, help="samples a language, over the subsets of the bench preset")
    parser.add_argument("--only", choices=[name for name, _, _ in SOURCES], help="one source alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.rows:
            started = time.perf_counter()
            wanted, counted = bench(Path(folder), options.rows)
            print(f"{wanted:,} samples wanted in each of two languages, {time.perf_counter() - started:,.0f} s\n")
            print(table([(SETTINGS[-2], counted)]))
            return
        sources = [source for source in SOURCES if options.only in (None, source[0])]
        world = World(Path(folder), options.clips, sources=sources)
        print(table((faults, build(world, faults)) for faults in SETTINGS))


if __name__ == "__main__":
    main()
