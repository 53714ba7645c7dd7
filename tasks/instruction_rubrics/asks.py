"""`instruction-rubrics`: what models are asked, in the language of the text at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.tasks.annotation.prompts import Prompt, prompt_named
from earmark.tasks.annotation.request import Audio, AudioForm, Sampling
from earmark.tasks.build.ask import Ask, Posed, Row, pose
from earmark.tasks.build.checks import Fault
from earmark.tasks.build.forecast import imagined
from earmark.tasks.instruction_rubrics.checks import items_fault, numbers_fault, perturbation_fault, translation_fault

SPOKEN = ("verify", "mismatch", "read", "decompose", "filter", "labels", "labels-partly", "hear", "rationales")
ITEMS = 4  # items that a dry run takes an instruction to have; AnyAudio-Judge's have about as many
SECOND = 100
"""Number of the draw by which an instruction is taken apart a second time: beyond all that a check may ask again."""
WORDS = 12  # words that it takes a text to have which is not written yet


def prompt_of(ask: str, language: str) -> Prompt:
    """The prompt of an ask in the language of the text that it is about."""
    return prompt_named(f"rubric-{ask}" if language == "en" else f"rubric-{ask}-{language}")


def prompt_digests(config: InstructionRubrics) -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    spoken = {source.language for source in config.sources}
    asks = [ask for ask in SPOKEN if ask != "decompose" or config.decomposition.prompts == "general"]
    prompts = [prompt_of(ask, language) for ask in asks for language in sorted(spoken)]
    if config.reader:
        prompts += [prompt_of("direction", language) for language in sorted(spoken)]
    if config.decomposition.prompts == "domain":
        wordings = {(f"decompose-{source.domain}", source.language) for source in config.sources}
        prompts += [prompt_of(wording, language) for wording, language in sorted(wordings)]
    changed = {(source.domain, source.language) for source in config.sources} if config.negatives.perturb else set()
    prompts += [prompt_of(f"perturb-{domain}", language) for domain, language in sorted(changed)]
    if config.bilingual:
        prompts += [
            prompt_named(f"rubric-translate-{other}") for one in sorted(spoken) for other in others(config, one)
        ]
    return {prompt.id: prompt.sha256 for prompt in prompts}


def others(config: InstructionRubrics, language: str) -> list[str]:
    """The languages that a text is translated into."""
    return [other for other in config.languages if other != language]


def listening_request(ask: str, config: InstructionRubrics, row: Row) -> Posed:
    """Whether an instruction fits a clip (`verify`), or is wrong for it (`mismatch`), or each of its items (`hear`).

    Args:
        ask: which of these.
        row: the clip: `clip_sha256`, `path`, `duration_s`; the `instruction`, or `items`; `pass`, of which the second
            is another draw, at a temperature of its own. `text`, the clip's own caption, reaches builtin judges alone.
    """
    judge = config.judge
    form = AudioForm(**judge.hearing.model_dump())
    clip = Audio(row["clip_sha256"], row["path"], duration_s=row["duration_s"], form=form)
    facts = {"ask": ask, "instruction": row["instruction"], "truth": row["text"], "generated": row["generated"]}
    shown = {"instruction": row["instruction"]}
    if ask == "hear":
        facts, shown = {"ask": ask, "items": row["items"]}, {"items": row["items"]}
    posed = pose(judge, prompt_of(ask, row["language"]), facts, clip=clip, **shown)
    if row["pass"] == 1:
        return posed
    sampling = _apart(posed.request.sampling, judge.again_temperature)
    again = config.writer.tries if ask == "hear" else 1  # apart from the first pass's own further draws
    return Posed(posed.prompt, replace(posed.request, sampling=sampling, sample=again))


def _apart(sampling: Sampling, again_temperature: float) -> Sampling:
    """How a second draw is made; a temperature that is left to the server stays so."""
    return sampling if sampling.temperature is None else replace(sampling, temperature=again_temperature)


def imagine_yes(config: InstructionRubrics, row: Row) -> dict[str, Any]:
    """What a dry run takes a judge to say: captions fit, and other instructions do not."""
    return {"answer": "yes", "evidence": imagined(WORDS)}


def _reader(
    name: str,
    role: str,
    *values: str,
    about: str,
    imagine: Callable[[InstructionRubrics, Row], Any],
    check: Callable[[InstructionRubrics, Row, Any], Fault | None],
    facts: tuple[str, ...] = ("language",),
    prompt: Callable[[Row], Prompt] | None = None,
    label: Callable[[InstructionRubrics, Row], str] | None = None,
) -> Ask[InstructionRubrics]:
    """An ask of a model that reads and writes, and hears nothing.

    Args:
        name, role, about, imagine, check, label: as `Ask` has them.
        values: what of a row the prompt shows.
        facts: what builtin writers get to know of it besides.
        prompt: its prompt; by default that of the ask's name, in the row's language.
    """

    def request(config: InstructionRubrics, row: Row) -> Posed:
        shown = {value: row[value] for value in values}
        known = {"ask": name, **shown, **{fact: row[fact] for fact in facts}}
        wording = prompt(row) if prompt else prompt_of(name, row["language"])
        return pose(config.asked()[role], wording, known, **shown)

    return Ask(name, role, request, imagine, check, about=about, label=label)


def _imagine_change(config: InstructionRubrics, row: Row) -> dict[str, Any]:
    text = f"{imagined(WORDS - 1)} {row['base']}"  # each caption's is another instruction
    return {"attribute": "", "before": "", "after": "", "caption": text}


def _imagine_items(config: InstructionRubrics, row: Row) -> dict[str, Any]:
    basis = " ".join(row["instruction"].split()[:WORDS])  # what rests on no words of the instruction would be dropped
    questions = (f"{imagined(WORDS)} {number}" for number in range(ITEMS))
    return {"items": [{"dimension": "", "question": question, "basis": basis} for question in questions]}


def _imagine_each(answer: str, value: str) -> Callable[[InstructionRubrics, Row], dict[str, Any]]:
    def imagine(config: InstructionRubrics, row: Row) -> dict[str, Any]:
        return {"items": [{"id": item["id"], answer: value, "rationale": imagined(WORDS)} for item in row["items"]]}

    return imagine


def _numbers(config: InstructionRubrics, row: Row, value: Any) -> Fault | None:
    return numbers_fault(len(row["items"]), value["items"])


VERIFY = Ask("verify", "judge", partial(listening_request, "verify"), imagine_yes, about="passes over captions")
PERTURB = _reader(
    "perturb",
    "writer",
    "caption",
    "attributes",
    about="captions of which a detail is changed",
    imagine=_imagine_change,
    check=lambda config, row, value: perturbation_fault(
        row["caption"], value, [one["name"] for one in row["attributes"]]
    ),
    facts=("domain", "language"),
    prompt=lambda row: prompt_of(f"perturb-{row['domain']}", row["language"]),
)
MISMATCH = Ask(
    "mismatch",
    "judge",
    partial(listening_request, "mismatch"),
    imagine_yes,
    about="clips with an instruction that is not theirs",
    label=lambda config, row: "mismatch: swap" if row["role"] == "swap" else "mismatch: changed",
)
DECOMPOSE = _reader(
    "decompose",
    "writer",
    "instruction",
    about="instructions, each taken apart once for all its clips",
    imagine=_imagine_items,
    check=lambda config, row, value: items_fault(row["instruction"], value["items"]),
    label=lambda config, row: "decompose: changed" if row["written_by"] else "decompose",
    prompt=lambda row: prompt_of(row["wording"], row["language"]),
)


def _second_draw(config: InstructionRubrics, row: Row) -> Posed:
    posed = DECOMPOSE.request(config, row)
    sampling = _apart(posed.request.sampling, config.writer.again_temperature)
    return Posed(posed.prompt, replace(posed.request, sampling=sampling, sample=SECOND))


REDECOMPOSE = replace(
    DECOMPOSE, name="redecompose", request=_second_draw, about="instructions taken apart a second time", label=None
)
DIRECTION = _reader(
    "direction", "reader", "instruction", "items", about="lists of items, read by a second model",
    imagine=_imagine_each("answer", "yes"), check=_numbers,
)  # fmt: skip
FILTER = _reader(
    "filter", "writer", "instruction", "items", about="lists of items", imagine=_imagine_each("verdict", "keep"),
    check=_numbers,
)  # fmt: skip
READ = _reader(
    "read", "labeller", "truth", "instruction", about="clips with an instruction that is not theirs",
    imagine=imagine_yes, check=lambda config, row, value: None,
)  # fmt: skip
HEAR = Ask(
    "hear", "judge", partial(listening_request, "hear"), _imagine_each("answer", "no"), _numbers,
    about="clips with items of an instruction",
    tries=lambda config: config.writer.tries,
)  # fmt: skip
LABEL = _reader(
    "labels", "labeller", "truth", "instruction", "items", about="negatives", imagine=_imagine_each("answer", "no"),
    check=_numbers,
)  # fmt: skip
LABEL_PARTLY = _reader(
    "labels-partly", "labeller", "truth", "instruction", "items", about="negatives of which little is known",
    imagine=_imagine_each("answer", "unknown"), check=_numbers,
)  # fmt: skip
RATIONALES = _reader(
    "rationales", "labeller", "instruction", "items", about="true instructions",
    imagine=_imagine_each("answer", "yes"), check=_numbers,
)  # fmt: skip
TRANSLATE = _reader(
    "translate",
    "translator",
    "texts",
    about="instructions with their items, and rationales of samples",
    imagine=lambda config, row: {"texts": row["texts"]},
    check=lambda config, row, value: translation_fault(row["texts"], row["into"], value["texts"]),
    facts=("into",),
    prompt=lambda row: prompt_named(f"rubric-translate-{row['into']}"),
    label=lambda config, row: f"translate: {row['into']}",
)
