"""Small caption sets, a local server's answers, and whole builds of `instruction-rubrics`.

`python -m tests.instruction_rubrics.rubrics CONFIG STORE` runs a build as a process of its own, to be killed.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from earmark.flows.instruction_rubrics import build
from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.annotation.request import Answer, Outcome, Request, Unanswered
from tests.builds import config_from, serve_builds
from tests.pseudo_preferences.music import write_clip
from tests.runner import run_flow

QUICK: dict[str, Any] = {
    "retry_base_s": 0.01,
    "total_timeout_s": 20.0,
    "max_concurrency": 4,
}
FENCED = re.compile(r"<([a-z]+)-([0-9a-f]+)>\n(.*?)\n</\1-\2>", re.DOTALL)
GENRES = ("jazz", "folk", "rock", "blues", "polka", "waltz", "tango", "samba")
PLAYED = ("piano", "violin", "flute", "guitar", "organ", "harp", "cello")


build_rubrics = partial(run_flow, build)


def caption(number: int) -> str:
    """A caption that shares few words with others."""
    return (
        f"A {GENRES[number % 8]} tune number {number} for the {PLAYED[number % 7]}, with {number + 30} bells, "
        f"played in hall {number * 7}"
    )


def write_captions(folder: Path, name: str, texts: Iterable[str], first: int = 0, **more: Any) -> dict[str, Any]:
    """A table of clips of their own, and the source that reads it."""
    rows = [("id", "audio", "text")]
    for number, text in enumerate(texts, first):
        write_clip(folder / f"{number}.wav", number, seconds=0.3)
        rows.append((f"c{number}", f"{number}.wav", text))
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return {"name": name, "subset": name, "domain": "music", "captions": f"{name}.csv", **more}


def config_of(folder: Path, *sources: Mapping[str, Any], base_url: str = "http://x/v1", **values: Any) -> Any:
    """A build config whose paths start from a folder."""
    held = {
        "most_rejected": None,
        "sources": list(sources),
        "length_s": [0.1, 600.0],
        "fingerprint": 0,
        "bench_share": 0.5,
        "judge": {**QUICK, "annotator": "openai:hears", "base_url": base_url},
        "writer": {**QUICK, "annotator": "openai:writes", "base_url": base_url},
        **values,
    }
    if held["fingerprint"] is None:  # left unset
        del held["fingerprint"]
    return config_from(InstructionRubrics, held, folder / "build.toml")


def said_to(body: Mapping[str, Any]) -> str:
    """The words of a request's last turn."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def fences(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The fenced texts of a request's last turn, by the name of their fence."""
    return [(name, text) for name, _, text in FENCED.findall(said_to(body))]


def asked_for(body: Mapping[str, Any]) -> str:
    """The ask, by the name of the schema; decomposition has one for each domain."""
    name: str = body["response_format"]["json_schema"]["name"]
    of_all = next((ask for ask in ("translate", "decompose") if ask in name), None)
    return of_all or name.removeprefix("rubric-").removesuffix("-zh").removesuffix("-paper")


def rubric_answer(body: dict[str, Any], content: str) -> str:
    """A sound answer to each ask, that follows from the request."""
    held = fences(body)
    texts = [text for _, text in held]
    ask = asked_for(body)
    if ask in ("verify", "mismatch", "read"):
        return json.dumps({"answer": "yes", "evidence": f"Heard {content[:8]}."})
    if ask.startswith("perturb"):
        return json.dumps(changed(texts[0]))
    if ask == "decompose":
        return json.dumps({"items": items_of(texts[0])})
    if ask == "translate":
        into = "zh" if body["response_format"]["json_schema"]["name"].endswith("zh") else "en"
        return json.dumps(
            {"texts": [f"译文：{text}" if into == "zh" else with_figures("Translated text", text) for text in texts]}
        )
    count = sum(name == "item" for name, _ in held)
    numbers = range(1, count + 1)
    if ask == "hear":
        return json.dumps({"items": [{"id": n, "answer": "yes", "rationale": f"Heard {n}."} for n in numbers]})
    if ask == "filter":
        return json.dumps({"items": [{"id": number, "verdict": "keep"} for number in numbers]})
    if ask == "rationales":
        return json.dumps({"items": [{"id": number, "rationale": f"It says so, {number}."} for number in numbers]})
    truth = texts[0]
    questions = [text for name, text in held if name == "item"]
    return json.dumps(
        {
            "items": [
                {"id": n, "answer": "yes" if basis_of(text) in truth else "no", "rationale": f"Compared, {n}."}
                for n, text in enumerate(questions, 1)
            ]
        }
    )


def with_figures(words: str, text: str) -> str:
    """Other words with a text's figures, as a translation keeps them."""
    return " ".join([words, *re.findall(r"\d+", text)])


def changed(text: str) -> dict[str, str]:
    """A caption with its last word changed."""
    before = text.split()[-1]
    at = text.rindex(before)
    caption = f"{text[:at]}nowhere"
    return {"attribute": "added sound", "before": before, "after": "nowhere", "also": [], "caption": caption}


def items_of(text: str) -> list[dict[str, str]]:
    clauses = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))[:6]
    return [{"dimension": "words", "question": f"Is it so: {part}?", "basis": part} for part in clauses]


def basis_of(question: str) -> str:
    """The clause that an item of `items_of` asks about."""
    return question.removeprefix("Is it so: ").removesuffix("?")


def whims(seed: int) -> Callable[[Request], Outcome]:
    """Answers that are drawn: some sound, some wrong, some missing; the same for the same request."""

    def answer(request: Request) -> Outcome:
        draw = int(request.key[:12], 16) ^ (seed * 2654435761)
        draw = int.from_bytes(draw.to_bytes(16, "big")[-6:], "big")
        if draw % 23 == 0:
            return Unanswered(request.key, "schema_mismatch", "expected JSON, found a whim", final=True)
        return Answer(request.key, _whim(json.loads(request.facts), draw))

    return answer


def _whim(facts: dict[str, Any], draw: int) -> Any:
    match facts["ask"]:
        case "verify":
            return {"answer": "no" if draw % 5 == 1 else "yes", "evidence": f"whim {draw % 97}"}
        case "mismatch" | "read":
            return {"answer": "no" if draw % 3 == 1 else "yes", "evidence": f"whim {draw % 97}"}
        case "perturb":
            value = changed(facts["caption"])
            return value if draw % 4 else {**value, "caption": f"{value['caption']} and more"}
        case "decompose":
            items = items_of(facts["instruction"])
            return {"items": items if draw % 6 else [*items, {**items[0], "basis": "no such words"}]}
        case "filter":
            verdicts = ("keep", "keep", "unsupported", "redundant", "inaudible")
            return {"items": [{"id": item["id"], "verdict": verdicts[(draw >> item["id"]) % 5]} for item in
                              facts["items"]]}  # fmt: skip
        case "labels" | "labels-partly" | "hear":
            choices = ("yes", "no") if facts["ask"] == "labels" else ("yes", "no", "unknown")
            return {"items": [{"id": item["id"], "answer": choices[(draw >> item["id"]) % len(choices)],
                               "rationale": "a whim"} for item in facts["items"]]}  # fmt: skip
        case "rationales":
            count = len(facts["items"]) + (draw % 9 == 1)
            return {"items": [{"id": number + 1, "rationale": "a whim"} for number in range(count)]}
    words = "译文：别的话" if facts["into"] == "zh" else "Other words"
    texts = [with_figures(words, text) for text in facts["texts"]]
    return {"texts": texts if draw % 7 else texts[:-1] or ["x"]}


def build_from_file(config: str, store: str) -> None:
    """What a process that may be killed runs."""
    path = Path(config)
    build_rubrics(parse_config(InstructionRubrics, read_toml(path), path), Path(store))


if __name__ == "__main__":
    serve_builds(build_from_file) if sys.argv[1:] == ["--serve"] else build_from_file(*sys.argv[1:])
