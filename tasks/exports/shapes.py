"""Shape a view's row as a trainer's row, by pure functions from text and paths to a dictionary."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from earmark.schemas.corpus import names_file


class ViewRow(TypedDict, total=False):
    """A row of a view; beside these, columns of its own."""

    id: str
    split: str
    system: str | None
    prompt: str | list[str]  # of a list, the pieces around the clips
    audios: list[str] | None
    images: list[str] | None
    completion: str | None
    chosen: str
    rejected: str
    chosen_audio: str
    rejected_audio: str
    chosen_critique: str | None
    rejected_critique: str


Shape = Callable[[ViewRow], dict[str, Any]]

# Markers of turns and media in chat templates and multimodal loaders. In text from outside they would end a turn,
# pose as another speaker, or ask for a missing clip.
MARKERS = re.compile(
    r"""<(?=\|[^<>|\s]{1,64}\|>)
      | <(?=/?(?:audio|image|video|bbox|ref-object|start-image|cot-process|tool_call|tool_response|think)>)
      | <(?=/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|start_of_image)>)
      | <(?=</?SYS>>)
      | \[(?=/?INST\])""",
    re.VERBOSE | re.IGNORECASE,
)
AUDIO, IMAGE = "<audio>", "<image>"
LEFT_OUT, IMAGE_LEFT_OUT = "[clip]", "[image]"
SWIFT_WORDS = frozenset(
    """messages images image videos video audios audio tools objects rejected_response label channel margin
    teacher_prompt teacher_images chat_template_kwargs ref_audios audio_codes questions kinds options target_probs
    state question_ids criteria system query response history""".split()  # noqa: SIM905
)


def defuse(text: str) -> str:
    """Return text without effective markers: a space is inserted after their first character."""
    return MARKERS.sub(lambda marker: marker[0] + " ", text)


def prompt_text(row: ViewRow, mark: str) -> str:
    """Return the prompt with a mark for each clip, and its images' marks before it; text from outside holds none."""
    clips = row.get("audios") or []
    seen = (IMAGE_LEFT_OUT if mark == LEFT_OUT else IMAGE) * len(row.get("images") or [])
    prompt = row["prompt"]
    if isinstance(prompt, str):
        return seen + mark * len(clips) + defuse(prompt)
    if len(prompt) != len(clips) + 1:
        raise ValueError(f"expected one text piece more than clips, found {len(prompt)} pieces and {len(clips)} clips")
    return seen + mark.join(defuse(piece) for piece in prompt)


def media(row: ViewRow) -> dict[str, list[str]]:
    """Return a prompt's clips and images, in the columns read by ms-swift and LLaMA-Factory."""
    images = row.get("images")
    return {"audios": list(row.get("audios") or []), **({} if images is None else {"images": list(images)})}


def turn(role: str, content: str) -> list[dict[str, str]]:
    """Return a turn of a conversation."""
    return [{"role": role, "content": content}]


def asked(row: ViewRow, mark: str) -> list[dict[str, str]]:
    """Return the turns of the question: the system's, if present, and the user's."""
    system = row.get("system")
    return (turn("system", defuse(system)) if system else []) + turn("user", prompt_text(row, mark))


def completion(row: ViewRow) -> str:
    """Return the wanted answer: the completion, or the chosen text of a preference."""
    wanted = row.get("completion")
    return defuse(row["chosen"] if wanted is None else wanted)


def extras(row: ViewRow, *known: str) -> dict[str, Any]:
    """Return the columns without a place in a format, unchanged."""
    return {name: value for name, value in row.items() if name not in (*known, "split")}


def trl_preference(row: ViewRow) -> dict[str, Any]:
    """Return TRL's preference with an explicit prompt, conversational."""
    prompt = asked(row, LEFT_OUT)
    chosen, rejected = (turn("assistant", defuse(text)) for text in (row["chosen"], row["rejected"]))
    return {"id": row["id"], "prompt": prompt, "chosen": chosen, "rejected": rejected}


def trl_sft(row: ViewRow) -> dict[str, Any]:
    """Return TRL's prompt and completion, conversational: the loss covers the completion alone."""
    return {
        "id": row["id"],
        "prompt": asked(row, LEFT_OUT),
        "completion": turn("assistant", completion(row)),
    }


def trl_grpo(row: ViewRow) -> dict[str, Any]:
    """Return TRL's prompt; the other columns reach the reward function."""
    return {"prompt": asked(row, LEFT_OUT), **extras(row, "prompt", "audios", "images", "system")}


def swift_preference(row: ViewRow) -> dict[str, Any]:
    """Return ms-swift's preference. Two texts become answer and `rejected_response`; two clips become two conversations
    with clips of their own, in the user's turn if the prompt has a place for one, or a critique answers it."""
    audios = list(row.get("audios") or [])
    if not isinstance(row["prompt"], str) and len(row["prompt"]) == len(audios) + 2:
        clips = {"audios": [*audios, row["chosen_audio"]], "rejected_audios": [*audios, row["rejected_audio"]]}
        scored = asked({**row, "audios": clips["audios"]}, AUDIO)
        return {"id": row["id"], "messages": scored, "rejected_messages": scored, **clips}
    ask = asked(row, AUDIO)
    if row.get("chosen") is not None:
        answered = {"messages": ask + turn("assistant", defuse(row["chosen"])), "audios": audios}
        return {"id": row["id"], **answered, "rejected_response": defuse(row["rejected"])}
    clips = {"audios": [*audios, row["chosen_audio"]], "rejected_audios": [*audios, row["rejected_audio"]]}
    if (critique := row.get("chosen_critique")) is not None:
        heard = turn("user", f"{prompt_text(row, AUDIO)}\nClip: {AUDIO}")
        rejected = turn("assistant", defuse(row["rejected_critique"]))
        both = {"messages": heard + turn("assistant", defuse(critique)), "rejected_messages": heard + rejected}
        return {"id": row["id"], **both, **clips}
    heard = ask + turn("assistant", AUDIO)
    return {
        "id": row["id"],
        "messages": heard,
        "audios": clips["audios"],
        "rejected_messages": heard,
        "rejected_audios": clips["rejected_audios"],
    }


def swift_sft(row: ViewRow) -> dict[str, Any]:
    """Return ms-swift's conversation with its clips."""
    messages = asked(row, AUDIO) + turn("assistant", completion(row))
    return {"id": row["id"], "messages": messages, **media(row)}


def swift_grpo(row: ViewRow) -> dict[str, Any]:
    """Return ms-swift's question with its clips; the other columns reach the reward function. A column with a name
    reserved by ms-swift is renamed to `extra_…`."""
    prompt = {"messages": asked(row, AUDIO), **media(row)}
    others = extras(row, "prompt", "audios", "images", "system")
    return {**prompt, **{f"extra_{name}" if name in SWIFT_WORDS else name: value for name, value in others.items()}}


def verl(row: ViewRow) -> dict[str, Any]:
    """Return verl's prompt with its clips; the reward function gets the other columns: as JSON in `ground_truth`, and
    with the clips in `extra_info`."""
    others = extras(row, "prompt", "images", "system")
    shown = {name: value for name, value in others.items() if name not in ("id", "audios")}
    return {
        "data_source": "earmark",
        "prompt": asked(row, AUDIO),
        **media(row),
        "ability": "audio",
        "reward_model": {"style": "rule", "ground_truth": json.dumps(shown, ensure_ascii=False, default=str)},
        "extra_info": {**others, "split": row["split"]},
    }


def llama_factory_preference(row: ViewRow) -> dict[str, Any]:
    """Return LLaMA-Factory's ranking row in ShareGPT form, with OpenAI's names of roles."""
    return {
        "id": row["id"],
        "messages": asked(row, AUDIO),
        "chosen": turn("assistant", defuse(row["chosen"]))[0],
        "rejected": turn("assistant", defuse(row["rejected"]))[0],
        "audios": list(row.get("audios") or []),
    }


def plain(row: ViewRow) -> dict[str, Any]:
    """Return the view's own columns."""
    return {name: value for name, value in row.items() if name != "split"}


def clips_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the row's clips and images by a short name: `chosen` for `chosen_audio`; `audio0`, `image0`, … for the
    prompt's."""
    named = {
        name.removesuffix("_audio").removesuffix("_image"): value
        for name, value in row.items()
        if names_file(name) and value
    }
    lists = {"audio": row.get("audios"), "image": row.get("images")}
    return named | {f"{kind}{at}": clip for kind, held in lists.items() for at, clip in enumerate(held or [])}
