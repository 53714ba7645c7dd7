"""`instruction-rubrics`: what models are asked, in the language of the text at hand, and which answers can stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from schemas.instruction_rubrics import InstructionRubrics, Judge, Writer
from tasks.annotation.backend import question
from tasks.annotation.prompts import Prompt, load_prompt
from tasks.annotation.request import Audio, AudioForm, Request

SPOKEN = ("verify", "mismatch", "decompose", "filter", "labels", "rationales")
Item = Mapping[str, Any]


@cache
def prompt_named(name: str) -> Prompt:
    """A prompt of the repository."""
    return load_prompt(Path(str(resources.files("prompts"))), f"rubric-{name}")


def prompt_of(ask: str, language: str) -> Prompt:
    """The prompt of an ask in the language of the text that it is about."""
    return prompt_named(ask if language == "en" else f"{ask}-{language}")


def prompt_digests(config: InstructionRubrics) -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    spoken = {source.language for source in config.sources}
    prompts = [prompt_of(ask, language) for ask in SPOKEN for language in sorted(spoken)]
    changed = {(source.domain, source.language) for source in config.sources} if config.negatives.perturb else set()
    prompts += [prompt_of(f"perturb-{domain}", language) for domain, language in sorted(changed)]
    if config.bilingual:
        prompts += [prompt_named(f"translate-{other}") for one in sorted(spoken) for other in others(config, one)]
    return {prompt.id: prompt.sha256 for prompt in prompts}


def others(config: InstructionRubrics, language: str) -> list[str]:
    """The languages that a text is translated into."""
    return [other for other in config.languages if other != language]


def annotators(config: InstructionRubrics) -> tuple[str, ...]:
    """Every model that is asked, once, in the order of the config."""
    named = [asked.annotator for asked in config.asked().values()]
    return tuple(dict.fromkeys([*named, *([config.similarity.model] if config.similarity else [])]))


def heard_request(judge: Judge, ask: str, row: Mapping[str, Any], instruction: str, *, again: bool = False) -> Request:
    """Whether an instruction fits a clip (`verify`), or is wrong for it (`mismatch`).

    Args:
        judge: who hears it.
        ask: `verify` or `mismatch`.
        row: the clip: `clip_sha256`, `path`, `duration_s`; `truth`, its own caption, reaches builtin judges alone.
        instruction: the instruction.
        again: the second pass: another draw, at the temperature of the config.
    """
    form = AudioForm(**judge.hearing.model_dump())
    clip = Audio(row["clip_sha256"], row["path"], duration_s=row["duration_s"], form=form)
    prompt = prompt_of(ask, row["language"])
    facts = {"ask": ask, "instruction": instruction, "truth": row["text"], "generated": row["generated"]}
    request = question(judge, prompt.render(clip=clip, instruction=instruction), prompt.ask, facts=facts)
    if not again:
        return request
    sampling = replace(request.sampling, temperature=judge.again_temperature)
    return replace(request, sampling=sampling, sample=1)


def perturb_request(writer: Writer, domain: str, language: str, caption: str) -> Request:
    """A caption with one detail changed."""
    prompt = prompt_of(f"perturb-{domain}", language)
    facts = {"ask": "perturb", "caption": caption, "domain": domain, "language": language}
    return question(writer, prompt.render(caption=caption), prompt.ask, facts=facts)


def decompose_request(writer: Writer, language: str, instruction: str) -> Request:
    """An instruction as items."""
    prompt = prompt_of("decompose", language)
    facts = {"ask": "decompose", "instruction": instruction, "language": language}
    return question(writer, prompt.render(instruction=instruction), prompt.ask, facts=facts)


def filter_request(writer: Writer, language: str, instruction: str, items: Sequence[Item]) -> Request:
    """Which items can stand."""
    prompt = prompt_of("filter", language)
    facts = {"ask": "filter", "instruction": instruction, "items": list(items), "language": language}
    return question(writer, prompt.render(instruction=instruction, items=list(items)), prompt.ask, facts=facts)


def labels_request(writer: Writer, language: str, truth: str, instruction: str, items: Sequence[Item]) -> Request:
    """The items of an instruction, answered for a clip of which something else is true."""
    prompt = prompt_of("labels", language)
    facts = {"ask": "labels", "truth": truth, "instruction": instruction, "items": list(items), "language": language}
    messages = prompt.render(truth=truth, instruction=instruction, items=list(items))
    return question(writer, messages, prompt.ask, facts=facts)


def rationales_request(writer: Writer, language: str, instruction: str, items: Sequence[Item]) -> Request:
    """Why the items of an instruction that is true are all yes."""
    prompt = prompt_of("rationales", language)
    facts = {"ask": "rationales", "instruction": instruction, "items": list(items), "language": language}
    return question(writer, prompt.render(instruction=instruction, items=list(items)), prompt.ask, facts=facts)


def translate_request(writer: Writer, into: str, texts: Sequence[str]) -> Request:
    """Texts in another language."""
    prompt = prompt_named(f"translate-{into}")
    facts = {"ask": "translate", "texts": list(texts), "into": into}
    return question(writer, prompt.render(texts=list(texts)), prompt.ask, facts=facts)
