"""`instruction-rubrics`: what a build would ask, explained ask by ask. Asks nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from schemas.instruction_rubrics import CORPUS, InstructionRubrics, Judge, Writer
from tasks.annotation.request import Request
from tasks.annotation.session import Session
from tasks.build.asking import clip_media
from tasks.build.ledger import has_ledger, ledger_address
from tasks.instruction_rubrics import asking
from tasks.instruction_rubrics.altering import plan_contest, plan_perturb
from tasks.instruction_rubrics.asking import others
from tasks.instruction_rubrics.choosing import choose_captions
from tasks.instruction_rubrics.hearing import plan_verify
from tasks.instruction_rubrics.records import Record, read_records, write_records, write_said
from tasks.instruction_rubrics.sources import import_captions, index_clips
from tasks.store.staging import Stage
from tasks.store.versions import Store

Asked: TypeAlias = Judge | Writer
ITEMS = 4
"""Items that an instruction is taken to have; AnyAudio-Judge's have about as many."""
WORDS = " ".join(["word"] * 12)


def forecast(config: InstructionRubrics, store: Store) -> dict[str, Any]:
    """What a build would ask at most, one try an answer, if every caption fits and every negative holds.

    Requests whose words are known are made, and the ledger is asked for them; the others, about texts that are not
    written yet, are counted by one that stands for all.

    Raises:
        InputError: a list is missing.
        LedgerError: the ledger cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(store, CORPUS.name, "dry-run", Path(folder))
        for part in ("work", "steps", "version"):
            (stage.folder / part).mkdir()
        import_captions(stage, config)
        index_clips(stage, config)
        plan_captions(stage, config)
        address = ledger_address(store) if has_ledger(store) else Path(folder) / "ledger.sqlite"
        told = dict(asks_of(stage, config, address))
    first, *rest = told
    return {**told[first], "stage": first, **{name: told[name] for name in rest}}


def plan_captions(stage: Stage, config: InstructionRubrics) -> None:
    """Choose among the captions that were read and measured, and plan their negatives as if all of them fit.

    No similarity is measured: it would load the model, and what it keeps out is not asked about.
    """
    config = config.model_copy(update={"similarity": None})
    choose_captions(stage, config)
    plan_verify(stage, config)
    write_records(
        stage,
        "verified",
        ({**row, "positive": True, "evidence": [], "verified_by": None} for row in read_records(stage, "verify")),
    )
    plan_perturb(stage)
    jobs = read_records(stage, "perturb")
    write_records(stage, "perturb", [])  # their answers are not there yet; only swaps can be planned
    plan_contest(stage, config)
    write_records(stage, "perturb", jobs)
    write_said(stage, "perturb", 0, [])


def known_requests(stage: Stage, config: InstructionRubrics) -> Iterator[tuple[str, Asked, list[Request], str]]:
    """The asks whose words are known: name, who is asked, requests, and what they are about."""
    jobs, swaps, changed = (read_records(stage, name) for name in ("verify", "contest", "perturb"))
    twice = [job for job in jobs if job["generated"]]
    heard = [asking.heard_request(config.judge, "verify", job, job["text"]) for job in jobs]
    heard += [asking.heard_request(config.judge, "verify", job, job["text"], again=True) for job in twice]
    yield "verify", config.judge, heard, f"{len(jobs):,} captions and their clips, {len(twice):,} of them twice"
    requests = [asking.perturb_request(config.writer, j["domain"], j["language"], j["text"]) for j in changed]
    yield "perturb", config.writer, requests, f"{len(changed):,} captions of which a detail is changed"
    requests = [asking.heard_request(config.judge, "mismatch", j, j["candidates"][0]["text"]) for j in swaps]
    yield "mismatch: swap", config.judge, requests, f"{len(swaps):,} clips with another sample's instruction"
    true = list({job["instruction_id"]: job for job in jobs}.values())
    requests = [asking.decompose_request(config.writer, job["language"], job["text"]) for job in true]
    yield "decompose", config.writer, requests, f"{len(true):,} captions, each taken apart once for all its clips"


def asks_of(stage: Stage, config: InstructionRubrics, address: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every ask by its name, with its requests, tokens and cost; `plan_captions` comes before."""
    for name, who, requests, about in known_requests(stage, config):
        yield name, _foretold(who, requests, about, address)
    jobs, changed = read_records(stage, "verify"), read_records(stage, "perturb")
    swaps = read_records(stage, "contest")
    true, negatives = len({job["instruction_id"] for job in jobs}), len(swaps) + len(changed)
    reader, translator = config.labeller or config.writer, config.translator or config.writer
    language = config.sources[0].language
    items: Sequence[Record] = [{"id": n + 1, "question": WORDS, "basis": WORDS} for n in range(ITEMS)]
    some = next(iter(jobs), None)
    if some is None:
        return
    told: dict[str, tuple[Asked, Request, int, str]] = {
        "mismatch: changed": (config.judge, asking.heard_request(config.judge, "mismatch", some, WORDS), len(changed),
                              "clips with a changed instruction"),
        "decompose: changed": (config.writer, asking.decompose_request(config.writer, language, WORDS), len(changed),
                               "changed instructions"),
        "filter": (config.writer, asking.filter_request(config.writer, language, WORDS, items), true + len(changed),
                   "lists of items"),
        "labels": (reader, asking.labels_request(reader, language, WORDS, WORDS, items), negatives, "negatives"),
        "rationales": (reader, asking.rationales_request(reader, language, WORDS, items), true, "true instructions"),
    }  # fmt: skip
    for into in others(config, language):
        request = asking.translate_request(translator, into, [WORDS] * (ITEMS + 1))
        what = f"instructions with their items into '{into}', and the rationales of samples"
        told[f"translate: {into}"] = (translator, request, 2 * true + len(changed) + negatives, what)
    for name, (who, request, count, what) in told.items():
        yield name, _many(who, request, count, f"{count:,} {what}", address)


def _foretold(who: Asked, requests: list[Request], about: str, address: str | Path) -> dict[str, Any]:
    with Session(who, ledger=address, media=clip_media()) as session:
        found = asdict(session.forecast(requests))
    tries = who.tries if isinstance(who, Writer) else 1
    return {"about": about, "annotator": who.annotator, "tries": tries, **found}


def _many(who: Asked, request: Request, count: int, about: str, address: str | Path) -> dict[str, Any]:
    """A forecast of one request that stands for many that are not written yet."""
    one = _foretold(who, [request], about, address)
    each = ("requests", "distinct", "from_ledger", "over_limit", "to_ask", "input_tokens", "most_output_tokens")
    return {**one, **{name: one[name] * count for name in (*each, "most_usd")}, "from_ledger": 0}
