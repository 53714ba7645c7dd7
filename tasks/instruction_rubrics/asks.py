"""`instruction-rubrics`: what models are asked, in the language of the text at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.tasks.annotation.prompts import Prompt, prompt_named
from earmark.tasks.annotation.request import Audio, AudioForm
from earmark.tasks.build.ask import Ask, Posed, Row, pose
from earmark.tasks.build.checks import Fault
from earmark.tasks.build.forecast import imagined
from earmark.tasks.instruction_rubrics.checks import items_fault, numbers_fault, perturbation_fault, translation_fault

SPOKEN = ("verify", "mismatch", "decompose", "filter", "labels", "rationales")
ITEMS = 4
"""Items that a dry run takes an instruction to have; AnyAudio-Judge's have about as many."""
WORDS = 12
"""Words that it takes a text to have which is not written yet."""


def prompt_of(ask: str, language: str) -> Prompt:
    """The prompt of an ask in the language of the text that it is about."""
    return prompt_named(f"rubric-{ask}" if language == "en" else f"rubric-{ask}-{language}")


def translator_of(into: str) -> Prompt:
    """The prompt that asks for a translation."""
    return prompt_named(f"rubric-translate-{into}")


def prompt_digests(config: InstructionRubrics) -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    spoken = {source.language for source in config.sources}
    prompts = [prompt_of(ask, language) for ask in SPOKEN for language in sorted(spoken)]
    changed = {(source.domain, source.language) for source in config.sources} if config.negatives.perturb else set()
    prompts += [prompt_of(f"perturb-{domain}", language) for domain, language in sorted(changed)]
    if config.bilingual:
        prompts += [translator_of(other) for one in sorted(spoken) for other in others(config, one)]
    return {prompt.id: prompt.sha256 for prompt in prompts}


def others(config: InstructionRubrics, language: str) -> list[str]:
    """The languages that a text is translated into."""
    return [other for other in config.languages if other != language]


def listening_request(ask: str, config: InstructionRubrics, row: Row) -> Posed:
    """Whether an instruction fits a clip (`verify`), or is wrong for it (`mismatch`).

    Args:
        ask: which of the two.
        config: the build config.
        row: the clip: `clip_sha256`, `path`, `duration_s`; the `instruction`; `pass`, of which the second is another
            draw, at a temperature of its own. `text`, the clip's own caption, reaches builtin judges alone.
    """
    judge = config.judge
    form = AudioForm(**judge.hearing.model_dump())
    clip = Audio(row["clip_sha256"], row["path"], duration_s=row["duration_s"], form=form)
    facts = {"ask": ask, "instruction": row["instruction"], "truth": row["text"], "generated": row["generated"]}
    posed = pose(judge, prompt_of(ask, row["language"]), facts, clip=clip, instruction=row["instruction"])
    if row["pass"] == 1:
        return posed
    sampling = replace(posed.request.sampling, temperature=judge.again_temperature)
    return Posed(posed.prompt, replace(posed.request, sampling=sampling, sample=1))


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
    item = {"dimension": "", "question": imagined(WORDS), "basis": imagined(WORDS)}
    return {"items": [item] * ITEMS}


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
    about="captions of which a detail is changed",
    imagine=_imagine_change,
    check=lambda config, row, value: perturbation_fault(row["caption"], value),
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
)
FILTER = _reader(
    "filter", "writer", "instruction", "items", about="lists of items", imagine=_imagine_each("verdict", "keep"),
    check=_numbers,
)  # fmt: skip
LABEL = _reader(
    "labels", "labeller", "truth", "instruction", "items", about="negatives", imagine=_imagine_each("answer", "no"),
    check=_numbers,
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
    prompt=lambda row: translator_of(row["into"]),
    label=lambda config, row: f"translate: {row['into']}",
)
