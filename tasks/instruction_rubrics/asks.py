"""Word the requests of `instruction-rubrics`, in the language of the text at hand."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from earmark.schemas.annotation import AGAIN_TEMPERATURE
from earmark.schemas.instruction_rubrics import InstructionRubrics, Language
from earmark.schemas.questions import Audio
from earmark.tasks.instruction_rubrics.checks import items_fault, numbers_fault, perturbation_fault, translation_fault
from earmark.tasks.instruction_rubrics.rows import RubricQuestion
from earmark.tasks.pipeline.ask import Ask, Fault, Posed, Row, Values
from earmark.tasks.pipeline.imagined import ITEMS, imagined

SECOND = 100
"""Number of the second decomposition's draw, beyond all retries of a check."""


def prompt_of(ask: str, language: str) -> str:
    """Return the name of an ask's prompt in the language of its text."""
    return f"rubric-{ask}" if language == "en" else f"rubric-{ask}-{language}"


def _spoken(config: InstructionRubrics) -> list[RubricQuestion]:
    return [{"language": language} for language in sorted({source.language for source in config.sources})]


def _domains(config: InstructionRubrics) -> list[RubricQuestion]:
    pairs = sorted({(source.domain, source.language) for source in config.sources})
    return [{"domain": domain, "language": language} for domain, language in pairs]


def _decomposed(config: InstructionRubrics) -> list[Row]:
    """List the wordings of a decomposition: one for all domains, or one for each."""
    if config.decomposition.prompts == "general":
        return [{"wording": "decompose", **one} for one in _spoken(config)]
    return [{"wording": f"decompose-{one['domain']}", **one} for one in _domains(config)]


def _translated(config: InstructionRubrics) -> list[Row]:
    return [{"into": other} for one in _spoken(config) for other in others(config, one["language"]) if config.bilingual]


def others(config: InstructionRubrics, language: str) -> list[Language]:
    """Return the target languages of a text's translations."""
    return [other for other in config.languages if other != language]


def _listening_values(ask: str, config: InstructionRubrics, row: RubricQuestion) -> Values:
    """Show a clip and an instruction that fits it (`verify`), or is wrong for it (`mismatch`), or its items (`hear`).

    Args:
        ask: `verify`, `mismatch` or `hear`.
        row: the clip: `clip_sha256`, `path`, `duration_s`; the `instruction`, or `items`. `text`, the clip's own
            caption, reaches builtin judges alone.
    """
    clip = Audio(row["clip_sha256"], row["path"], duration_s=row["duration_s"])
    if ask == "hear":
        return Values({"clip": clip, "items": row["items"]}, {"ask": ask, "items": row["items"]})
    facts = {"ask": ask, "instruction": row["instruction"], "truth": row["text"], "generated": row["generated"]}
    return Values({"clip": clip, "instruction": row["instruction"]}, facts)


def _another_draw(posed: Posed, sample: int) -> Posed:
    """Return a question's other draw at another temperature, unless the server chooses it."""
    sampling = posed.request.sampling
    if sampling.temperature is not None:
        sampling = replace(sampling, temperature=AGAIN_TEMPERATURE)
    return Posed(posed.prompt, replace(posed.request, sampling=sampling, sample=sample))


def _listener(name: str, **declared: Any) -> Ask[InstructionRubrics]:
    """Declare an ask of the judge."""
    return Ask(
        name,
        "judge",
        prompt=lambda config, row: prompt_of(name, row["language"]),
        kinds=_spoken,
        values=partial(_listening_values, name),
        **declared,
    )


def _reader(
    name: str, role: str, *values: str, facts: tuple[str, ...] = ("language",), **declared: Any
) -> Ask[InstructionRubrics]:
    """Declare an ask of a model that reads and writes, and hears nothing.

    Args:
        name, role, declared: as in `Ask`; by default, the prompt has the ask's name and the row's language.
        values: fields of a row shown in the prompt.
        facts: further fields for builtin writers.
    """

    def shown(config: InstructionRubrics, row: Row) -> Values:
        shown = {value: row[value] for value in values}
        return Values(shown, {"ask": name, **shown, **{fact: row[fact] for fact in facts}})

    named = {"prompt": lambda config, row: prompt_of(name, row["language"]), "kinds": _spoken}
    return Ask(name, role, values=shown, **{**named, **declared})


def _imagine_items(config: InstructionRubrics, row: RubricQuestion) -> dict[str, Any]:
    basis = " ".join(row["instruction"].split()[:12])  # an item without words of the instruction would be dropped
    return {"items": [{"dimension": ..., "question": ..., "basis": basis}] * ITEMS}


def _each(**fields: Any) -> Callable[[InstructionRubrics, RubricQuestion], dict[str, Any]]:
    """Imagine the same fields of each item."""
    return lambda config, row: {"items": [{"id": item["id"], **fields} for item in row["items"]]}


def _numbers(config: InstructionRubrics, row: RubricQuestion, value: Any) -> Fault | None:
    return numbers_fault(len(row["items"]), value["items"])


_FIRST_PASS = _listener("verify", about="passes over captions")


def _in_passes(config: InstructionRubrics, row: Row) -> Posed:
    """Ask in the second `pass` for another draw, at a temperature of its own."""
    posed = _FIRST_PASS.pose(config, row)
    return posed if row["pass"] == 1 else _another_draw(posed, 1)


VERIFY = replace(_FIRST_PASS, request=_in_passes)
PERTURB = _reader(
    "perturb",
    "writer",
    "caption",
    "attributes",
    about="captions of which a detail is changed",
    imagine=lambda config, row: {"caption": f"{imagined(11)} {row['base']}"},  # each caption's is another instruction
    check=lambda config, row, value: perturbation_fault(
        row["caption"], value, [one["name"] for one in row["attributes"]]
    ),
    facts=("domain", "language"),
    prompt=lambda config, row: prompt_of(f"perturb-{row['domain']}", row["language"]),
    kinds=lambda config: _domains(config) if "perturb" in config.negatives else [],
)
MISMATCH = _listener(
    "mismatch",
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
    prompt=lambda config, row: prompt_of(row["wording"], row["language"]),
    kinds=_decomposed,
)
REDECOMPOSE = replace(
    DECOMPOSE,
    name="redecompose",
    request=lambda config, row: _another_draw(DECOMPOSE.pose(config, row), SECOND),
    about="instructions taken apart a second time",
    label=None,
)
DIRECTION = _reader(
    "direction", "reader", "instruction", "items", about="lists of items, read by a second model",
    imagine=_each(answer="yes"), check=_numbers, kinds=lambda config: _spoken(config) if config.reader else [],
)  # fmt: skip
FILTER = _reader(
    "filter", "writer", "instruction", "items", about="lists of items", imagine=_each(verdict="keep"), check=_numbers
)  # fmt: skip
READ = _reader("read", "labeller", "truth", "instruction", about="clips with an instruction that is not theirs")
HEAR = _listener(
    "hear",
    about="clips with items of an instruction",
    imagine=_each(answer="no"),
    check=_numbers,
    tries=lambda config: config.writer.tries,
)
LABEL = _reader(
    "labels", "labeller", "truth", "instruction", "items", about="negatives", imagine=_each(answer="no"), check=_numbers
)
LABEL_PARTLY = _reader(
    "labels-partly", "labeller", "truth", "instruction", "items", about="negatives of which little is known",
    imagine=_each(answer="unknown"), check=_numbers,
)  # fmt: skip
RATIONALES = _reader(
    "rationales", "labeller", "instruction", "items", about="true instructions", imagine=_each(), check=_numbers
)
TRANSLATE = _reader(
    "translate",
    "translator",
    "texts",
    about="instructions with their items, and rationales of samples",
    imagine=lambda config, row: {"texts": row["texts"]},
    check=lambda config, row, value: translation_fault(row["texts"], row["into"], value["texts"]),
    facts=("into",),
    prompt=lambda config, row: f"rubric-translate-{row['into']}",
    kinds=_translated,
    label=lambda config, row: f"translate: {row['into']}",
)
ASKS = (
    VERIFY, MISMATCH, READ, DECOMPOSE, FILTER, LABEL, LABEL_PARTLY, HEAR, RATIONALES, DIRECTION, PERTURB, TRANSLATE
)  # fmt: skip
