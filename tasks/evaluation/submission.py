"""Measure a system's clips of a version's prompts by sound checks, CLAP score, FAD and CCS: `earmark eval score`.

Embeddings are kept by clip and model, answers in the ledger: an interrupted run resumes, and another system costs only
its own clips. The record lies beside the version, keyed by its digest.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import EarmarkError, InputError, StoreError
from earmark.schemas.evaluations import Evaluation, Examinee, Generation, Scorer
from earmark.schemas.questions import Audio, says_yes
from earmark.schemas.reasons import AudioFault
from earmark.schemas.registry import load
from earmark.schemas.results import ScoreFacts, ScoreGroup
from earmark.tasks.annotation.prompts import own_words
from earmark.tasks.annotation.request import AskPlan
from earmark.tasks.annotation.scorer import ScorerInput
from earmark.tasks.audio.decode import decode
from earmark.tasks.audio.measure import clipped_share
from earmark.tasks.audio.probe import Probe
from earmark.tasks.audio.similarity import ClipText, Similarity
from earmark.tasks.evaluation import scorers
from earmark.tasks.evaluation.asking import Questioner, SampleRequest
from earmark.tasks.evaluation.entries import concept_shares
from earmark.tasks.evaluation.frechet import Gaussian, KernelReference, fad, kad
from earmark.tasks.evaluation.influence import mean_of
from earmark.tasks.evaluation.kinds import Prediction, values_of
from earmark.tasks.exports.clips import ClipFile, clip_files
from earmark.tasks.pipeline.media import media_index, similarity_of
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.pipeline.rows import words_of
from earmark.tasks.pipeline.sessions import open_session
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.folder import named_word, records_of, version_facts, write_record
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.parquet import row_schema
from earmark.tasks.store.versions import Store, Version

RECORD, CLIPS = "score.json", "clips.parquet"
STATISTICS = ".npz"
AUDIO = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a")
SILENT_DBFS, SILENT_SHARE, CLIPPED_SHARE, LENGTH_OFF = -60.0, 0.9, 0.001, 0.05
ALL = "all"
CONCEPTS = pa.list_(pa.struct([("concept", pa.string()), ("p_yes", pa.float64()), ("reason", pa.string())]))
COLUMNS = pa.schema(
    [
        *row_schema(  # a group is `column: value`
            "id string, groups string[], clip_sha256 string, duration_s float64, level_dbfs float64, "
            "silent_share float64, clipped_share float64, faults string[], clap float64"
        ),
        pa.field("concepts", CONCEPTS),
        pa.field("coverage", pa.float64()),  # audible share of the answered concepts
        pa.field("request_keys", pa.list_(pa.string())),
        pa.field("scores", scorers.SCORES),
    ]
)


@dataclass(frozen=True)
class ScoreOptions:
    """Options of a measured submission."""

    generations: Path  # the folder of clips, each named by its prompt's id, at any depth
    system: str | None = None  # the submission's name; default the folder's
    team: str | None = None  # team, track: of a challenge; without a team it is the baseline where others have one
    track: str | None = None
    topline: bool = False  # whether it is shown beside the ranks and takes no part
    clap: str | None = None  # the CLAP model, a folder or a name on the Hub; without it neither CLAP score nor FAD
    # the reference of FAD: a folder of audio, a version such as `instrumentals@v1` or a split of it, as
    # `instrumentals@v1:test`, or statistics (.npz)
    reference: str | None = None
    reference_sample: int | None = None  # number of its clips to draw; None for all
    seed: int = 17  # of this draw
    length_s: float | None = None  # expected length of clips; unchecked by default
    partial: bool = False  # whether to leave out prompts without a usable clip; default an error
    roots: tuple[Path, ...] = ()  # folders to search for moved clips of the reference
    scorers: tuple[Scorer, ...] = ()  # sources of further scores


class PromptClip(NamedTuple):
    """A prompt's row and the system's clip of it."""

    row: dict[str, Any]
    path: Path
    probe: Probe


def score(
    version: Version, corpus: Corpus, store: Store, judge: Examinee | None, wish: ScoreOptions, out: Path | None
) -> tuple[ScoreFacts, Path]:
    """Measure a submission and write its record; return its facts (`score.json`), and the folder.

    Args:
        judge: is asked for the audible concepts; without a judge there is no CCS.

    Raises:
        StoreError: the corpus has no prompts to generate from.
        InputError: clips are missing, unusable or duplicate; or the reference has no clips.
        StopRun: a fault of every request, or the budget's end.
        EarmarkError: no question to the judge was answered, or a scorer scored no clip.
    """
    generation = generation_of(corpus)
    if wish.topline and (wish.team or wish.track):
        raise InputError("--topline: it is not ranked, so it has no --team and no --track")
    if wish.reference is not None and wish.clap is None:
        raise InputError("--reference: FAD needs a model: name a CLAP model with --clap, or leave --reference out")
    made, lacking, unused = _submitted(version, store, generation, wish)
    scores = scorers.clip_scores(_audio(made, generation), wish.scorers, store)
    if wish.reference_sample is not None and (wish.reference or "").endswith(STATISTICS):
        raise InputError("--reference-sample: statistics hold no clips to draw from")
    model = None if wish.clap is None else similarity_of(store, wish.clap)
    fits, vectors, reference = _embedded(made, generation, model, wish, store)
    answers, asked = _judged(version, made, generation, judge, store)
    system = wish.system or wish.generations.resolve().name
    rows = _rows(made, generation, wish, fits, answers, scores)
    facts: ScoreFacts = {
        **version_facts(version),
        "system": system,
        "team": wish.team,
        "track": wish.track,
        "topline": wish.topline,
        "prompts": len(made) + len(lacking),
        "clips": len(made),
        "lacking": lacking,
        "unused_files": unused,
        "measured_by": {
            "clap": model and {"model": model.model, "sha256": model.digest},
            "reference": reference and {**reference.facts, "name": wish.reference},
            "length_s": wish.length_s,
            "scores": scorers.described(wish.scorers),
            **asked,
        },
        "groups": _groups(rows, vectors, reference),
        "concepts": _by_concept(rows),
        "concepts_asked": len(generation.concepts) * len(made) if judge else 0,
        "checks": dict(sorted(Counter(fault for row in rows for fault in row["faults"]).items())),
        "unanswered": dict(sorted(Counter(one["reason"] for row in rows for one in row["concepts"]
                                          if one["reason"]).items())),
        "unscored": scorers.unscored(rows),
    }  # fmt: skip
    folder = out or records_of(store, version) / f"score-{named_word(system, 'system')}"
    cells = [tuple(values_of(row, COLUMNS.names)) for row in rows]
    return facts, write_record(folder, RECORD, facts, clips=(COLUMNS, cells))


def forecast(
    version: Version, corpus: Corpus, store: Store, judge: Examinee | None, wish: ScoreOptions
) -> list[AskPlan]:
    """Count the requests of `score` to the judge and each scorer without asking."""
    generation = generation_of(corpus)
    made, *_ = _submitted(version, store, generation, wish)
    plans: list[AskPlan] = []
    if judge is not None:
        with _questions(version, made, generation, judge) as questions, open_session(store, judge) as session:
            plan = session.forecast(one.request for _, group, _ in questions for one in group)
        about = f"{len(generation.concepts)} concepts of {len(made):,} clips"
        plans = [{"annotator": judge.annotator, "about": about, **plan}]
    return [*plans, *scorers.scorer_forecasts(_audio(made, generation), wish.scorers, store)]


def generation_of(corpus: Corpus) -> Generation:
    """Return the description of a corpus's prompts."""
    if corpus.generation is None:
        raise StoreError(f"{corpus.name} holds no prompts that systems generate audio for; music-prompts does")
    return corpus.generation


def _submitted(
    version: Version, store: Store, generation: Generation, wish: ScoreOptions
) -> tuple[list[PromptClip], dict[str, str], int]:
    """Return usable clips in the order of prompts, prompts without one with reasons, and the count of other files."""
    if not wish.generations.is_dir():
        raise InputError(f"--generations: expected a folder of clips: {wish.generations}")
    rows = {row[generation.key]: row for row in prompts_of(version, generation)}
    paths: dict[str, Path] = {}
    unused = 0
    for path in _audio_below(wish.generations):
        if path.stem not in rows:
            unused += 1
        elif path.stem in paths:
            raise InputError(f"--generations: prompt '{path.stem}' has two clips, {paths[path.stem]} and {path}")
        else:
            paths[path.stem] = path
    with working("measure clips", len(paths)) as work:
        probes = dict(zip(paths, media_index(store).look([*paths.values()], seen=work.advance), strict=True))
    lacking = {name: "no clip" for name in rows if name not in paths}
    lacking |= {name: one.detail for name, one in probes.items() if isinstance(one, AudioFault)}
    if len(lacking) == len(rows) or (lacking and not wish.partial):
        name, why = next(iter(lacking.items()))
        raise InputError(
            f"--generations {wish.generations}: {len(lacking):,} of {len(rows):,} prompts have no usable clip, the "
            f"first is '{name}' ({why}); a file is called like its prompt's {generation.key}; --partial leaves them out"
        )
    made = [
        PromptClip(row, paths[name], one) for name, row in rows.items() if isinstance(one := probes.get(name), Probe)
    ]
    return made, lacking, unused


def prompts_of(version: Version, generation: Generation) -> list[dict[str, Any]]:
    """Read a version's prompts with their ids, groups and concepts, by id."""
    shown = [column for mode in generation.concepts for column in mode.columns if column != "audio"]
    columns = list(dict.fromkeys([generation.key, generation.text, *generation.groups, *shown]))
    files = [version.whole(entry) for entry in version.manifest.entries(generation.table)]
    rows = [row for file in files for row in pq.read_table(file, columns=columns).to_pylist()]
    return sorted(rows, key=lambda row: str(row[generation.key]))


def _audio(made: Sequence[PromptClip], generation: Generation) -> dict[str, ScorerInput]:
    return {
        one.row[generation.key]: ScorerInput(
            Audio(one.probe.clip_sha256, str(one.path), duration_s=one.probe.duration_s), one.row[generation.text]
        )
        for one in made
    }


def _audio_below(folder: Path) -> list[Path]:
    return sorted(path.absolute() for path in folder.rglob("*") if path.suffix.lower() in AUDIO and path.is_file())


# -- CLAP score and FAD -------------------------------------------------------------------------------------------


def _embedded(
    made: Sequence[PromptClip], generation: Generation, model: Similarity | None, wish: ScoreOptions, store: Store
) -> tuple[list[float | None], Any, Reference | None]:
    """Return each clip's CLAP score and embedding, (clips, dimensions), and the reference with its facts."""
    if model is None:
        return [None] * len(made), None, None
    said = [ClipText(one.probe.clip_sha256, one.path, one.row[generation.text]) for one in made]
    with working("embed clips", len(said)) as work:
        fits = [*model.cosines(said, work.advance)]
    vectors = model.embeddings({one.clip_sha256: one.path for one in said})
    rows = np.stack([vectors[one.clip_sha256] for one in said])
    return [*fits], rows, None if wish.reference is None else _reference(wish.reference, model, wish, store)


class Reference(NamedTuple):
    """Reference of clips: a Gaussian for FAD, and clips for KAD if there are any."""

    gaussian: Gaussian
    kernel: KernelReference | None
    facts: dict[str, Any]  # what it is, in the record


def _reference(name: str, model: Similarity, wish: ScoreOptions, store: Store) -> Reference:
    if name.endswith(STATISTICS):
        return Reference(_statistics(Path(name)), None, {"clips": None, "sha256": sha256_file(Path(name))})
    with tempfile.TemporaryDirectory(prefix="earmark-") as temporary:
        paths = _reference_clips(name, store, Path(temporary), wish.roots)
        drawn = {"sample": wish.reference_sample, "seed": wish.seed} if wish.reference_sample else {}
        if wish.reference_sample:
            paths = _drawn(name, paths, wish.reference_sample, wish.seed)
        with working("embed the reference", len(paths)) as work:
            vectors = model.embeddings(dict(sorted(paths.items())), work.advance)
    rows = np.stack([*vectors.values()])
    facts = {"clips": len(paths), "sha256": digest_of(sorted(paths)), **drawn}
    return Reference(Gaussian(rows), KernelReference(rows), facts)


def _drawn(name: str, paths: Mapping[str, Path], count: int, seed: int) -> dict[str, Path]:
    """Draw clips by seeded hash of their content."""
    if count > len(paths):
        raise InputError(f"--reference-sample {count}: {name} has {len(paths):,} different clips")
    order = sorted(paths, key=lambda sha256: hashlib.sha256(f"{seed}/{sha256}".encode()).digest())
    return {sha256: paths[sha256] for sha256 in order[:count]}


def _statistics(path: Path) -> Gaussian:
    """Read mean and covariance, `mu` and `cov` as fadtk writes them, also as `MODEL.mu` and `MODEL.cov`."""
    try:
        with np.load(path) as held:
            found = {name.rpartition(".")[2]: held[name] for name in held.files}
        return Gaussian.of_moments(*(found[name] for name in ("mu", "cov")))
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise InputError(f"--reference {path}: expected statistics mu and cov in .npz: {error}") from None


def _reference_clips(name: str, store: Store, spill: Path, roots: Sequence[Path]) -> dict[str, Path]:
    """Return different clips of a folder, or of a version, by SHA-256."""
    if (folder := Path(name)).is_dir():
        files = _audio_below(folder)
        with working("measure the reference", len(files)) as work:
            probes = media_index(store).look(files, seen=work.advance)
        for path, one in zip(files, probes, strict=True):
            if isinstance(one, AudioFault):
                raise InputError(f"--reference: {path}: {one.reason}: {one.detail}; mend it or take it away")
        paths = {one.clip_sha256: path for path, one in zip(files, probes, strict=True) if isinstance(one, Probe)}
    else:
        spec, _, split = name.partition(":")
        version = store.find(spec)
        tables = [table for table in find_corpus(version.corpus).tables if "clip_sha256" in table.schema.names]
        entries = [one for table in tables for one in version.manifest.entries(table.name, split or None)]
        files = [version.whole(entry) for entry in entries]
        wanted = {one for file in files for one in pq.read_table(file)["clip_sha256"].to_pylist() if one is not None}
        paths = {sha256: clip.path for sha256, clip in clip_files(wanted, version, store, spill, roots).items()}
    if len(paths) < 2:
        raise InputError(f"--reference {name}: expected two different clips or more, found {len(paths)}")
    return paths


# -- concepts -----------------------------------------------------------------------------------------------------


@contextmanager
def _questions(
    version: Version, made: Sequence[PromptClip], generation: Generation, judge: Examinee
) -> Iterator[list[tuple[Questioner, list[SampleRequest], str]]]:
    """Yield the questions to the judge, with the prompts' ids: one concept of all clips after the other.

    They are those by which the version's tags were verified, in its own words if it has any.
    """
    asked_by = load(generation.asked_by)(version)
    clips = {one.probe.clip_sha256: ClipFile(one.path, one.probe.duration_s) for one in made}
    words = own_words(words_of(version, judge.own_prompts()))
    with tempfile.TemporaryDirectory(prefix="earmark-") as temporary, words:
        questions = []
        for mode in generation.concepts:
            evaluation = Evaluation(mode.name, "yes_no", "", "", (mode,))
            names = [asked_by[one.row[generation.key]][mode.name] for one in made]
            by_prompt = {name: Questioner(evaluation, replace(mode, prompt=name), judge, clips, Path(temporary))
                         for name in dict.fromkeys(names)}  # fmt: skip
            for one, name in zip(made, names, strict=True):
                asked = by_prompt[name].requests({**one.row, "audio": one.probe.clip_sha256})
                questions.append((by_prompt[name], asked, one.row[generation.key]))
        yield questions


def _judged(
    version: Version, made: Sequence[PromptClip], generation: Generation, judge: Examinee | None, store: Store
) -> tuple[list[list[tuple[str, Prediction]]], dict[str, Any]]:
    if judge is None:
        return [[] for _ in made], {"judge": None}
    with _questions(version, made, generation, judge) as questions, open_session(store, judge) as session:
        outcomes = iter(session.ask([one.request for _, group, _ in questions for one in group]).outcomes)
        read = [one.read(name, group, [next(outcomes) for _ in group]) for one, group, name in questions]
        prompts = {name: sha256 for one, _, _ in questions for name, sha256 in one.prompts.items()}
    if not any(one.answered for one in read):
        raise EarmarkError(f"{judge.annotator} answered no question; most for '{read[0].reason}': {read[0].detail}")
    by_concept = [read[at : at + len(made)] for at in range(0, len(read), len(made))]
    names = [mode.name for mode in generation.concepts]
    answers = [list(zip(names, group, strict=True)) for group in zip(*by_concept, strict=True)]
    return answers, {"judge": {"annotator": judge.annotator, "prompts": prompts}}


# -- counted ------------------------------------------------------------------------------------------------------


def _rows(
    made: Sequence[PromptClip],
    generation: Generation,
    wish: ScoreOptions,
    fits: Sequence[float | None],
    answers: Sequence[Sequence[tuple[str, Prediction]]],
    scores: Mapping[str, Sequence[scorers.Scored]],
) -> list[scorers.ScoredRow]:
    coverage = concept_shares([one.score for _, one in concepts] for concepts in answers)
    rows: list[scorers.ScoredRow] = []
    for one, fit, concepts, share in zip(made, fits, answers, coverage, strict=True):
        clipped = clipped_share(decode(one.path)[0])
        numbers = scores[one.row[generation.key]]
        rows.append(
            {
                "id": one.row[generation.key],
                "groups": [f"{name}: {one.row[name]}" for name in generation.groups if one.row[name] is not None],
                "clip_sha256": one.probe.clip_sha256,
                "duration_s": one.probe.duration_s,
                "level_dbfs": one.probe.level_dbfs,
                "silent_share": one.probe.silent_share,
                "clipped_share": clipped,
                "faults": faults_of(one.probe, clipped, wish.length_s),
                "clap": fit,
                "concepts": [
                    {
                        "concept": name,
                        "p_yes": prediction.score,
                        "reason": None if prediction.answered else prediction.reason,
                    }
                    for name, prediction in concepts
                ],
                "coverage": share,
                "request_keys": [
                    *(key for _, prediction in concepts for key in prediction.requests),
                    *dict.fromkeys(number.request_key for number in numbers),
                ],
                "scores": [
                    {"name": one.name, "value": one.value, "reason": one.reason, "detail": one.detail}
                    for one in numbers
                ],
            }
        )
    return rows


def faults_of(probe: Probe, clipped: float, length_s: float | None) -> list[str]:
    """Return the faults of a clip's sound: `silent`, `clipped`, `short`, `long`. Faulty clips are still measured.

    Args:
        probe: its measurements.
        clipped: share of its samples in clipped runs, 0 to 1.
        length_s: expected length; a twentieth more or less is allowed.
    """
    off = 0.0 if length_s is None else probe.duration_s / length_s - 1
    wrong = {
        "silent": probe.level_dbfs < SILENT_DBFS or probe.silent_share > SILENT_SHARE,
        "clipped": clipped > CLIPPED_SHARE,
        "short": off < -LENGTH_OFF,
        "long": off > LENGTH_OFF,
    }
    return [name for name, is_so in wrong.items() if is_so]


def _groups(rows: Sequence[scorers.ScoredRow], vectors: Any, reference: Reference | None) -> list[ScoreGroup]:
    names = [ALL, *sorted({name for row in rows for name in row["groups"]})]
    found: list[ScoreGroup] = []
    for name in names:
        places = [at for at, row in enumerate(rows) if name == ALL or name in row["groups"]]
        distance = kernel = None
        if reference is not None and len(places) > 1:
            try:
                distance = fad(reference.gaussian, vectors[places])
            except ValueError as error:
                raise InputError(f"--reference: {error}; it is of another model than --clap") from None
            kernel = kad(reference.kernel, vectors[places]) if reference.kernel else None
        ccs = mean_of([rows[at]["coverage"] for at in places], shares=True)
        clap = mean_of([rows[at]["clap"] for at in places])
        scores = {
            kind: mean_of([scorers.score_in(rows[at], kind) for at in places]) for kind in scorers.names_of(rows[0])
        }
        found.append(
            ScoreGroup(group=name, clips=len(places), ccs=ccs, clap=clap, fad=distance, kad=kernel, scores=scores)
        )
    return found


MEANS: dict[str, Literal["coverage", "clap"]] = {
    "ccs": "coverage",
    "clap": "clap",
}  # measures averaged over clips, and their columns in `clips.parquet`


def _by_concept(rows: Sequence[scorers.ScoredRow]) -> dict[str, float]:
    """Return the share of clips with each audible concept, among the answered ones."""
    answers: dict[str, list[bool]] = {}
    for row in rows:
        for one in row["concepts"]:
            if one["p_yes"] is not None:
                answers.setdefault(one["concept"], []).append(says_yes(one["p_yes"]))
    return {name: float(np.mean(known)) for name, known in answers.items()}
