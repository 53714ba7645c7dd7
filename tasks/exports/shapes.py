"""One row of a view as one row of a trainer. Pure: what goes in is text and paths, what comes out is a dictionary."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from earmark.schemas.views import names_file

Row = Mapping[str, Any]
Shape = Callable[[Row], dict[str, Any]]

# Words with which chat templates and multimodal loaders mark turns and media. In text from outside they would end a
# turn, pose as another speaker, or ask for a clip that is not there.
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
    """Text in which no marker takes effect: a space stands after its first sign."""
    return MARKERS.sub(lambda marker: marker[0] + " ", text)


def prompt_text(row: Row, mark: str) -> str:
    """The prompt with a mark where each clip stands, and marks of its images before it; text from outside holds none.

    Raises:
        ValueError: the pieces of text and the clips do not fit each other.
    """
    clips = row.get("audios") or []
    seen = (IMAGE_LEFT_OUT if mark == LEFT_OUT else IMAGE) * len(row.get("images") or [])
    prompt = row["prompt"]
    if isinstance(prompt, str):
        return seen + mark * len(clips) + defuse(prompt)
    if len(prompt) != len(clips) + 1:
        raise ValueError(f"expected one text piece more than clips, found {len(prompt)} pieces and {len(clips)} clips")
    return seen + mark.join(defuse(piece) for piece in prompt)


def media(row: Row) -> dict[str, list[str]]:
    """The clips and images that a prompt shows, by the columns that ms-swift and LLaMA-Factory read."""
    seen = {"images": list(row["images"])} if row.get("images") is not None else {}
    return {"audios": list(row.get("audios") or []), **seen}


def turn(role: str, content: str) -> list[dict[str, str]]:
    """One turn of a conversation."""
    return [{"role": role, "content": content}]


def completion(row: Row) -> str:
    """What a model should have answered: the completion, or the chosen text of a preference."""
    return defuse(row["completion"] if row.get("completion") is not None else row["chosen"])


def extras(row: Row, *known: str) -> dict[str, Any]:
    """The columns that a format has no place for, as they are."""
    return {name: value for name, value in row.items() if name not in (*known, "split")}


def trl_preference(row: Row) -> dict[str, Any]:
    """TRL's preference with an explicit prompt, conversational."""
    prompt = turn("user", prompt_text(row, LEFT_OUT))
    both = {name: turn("assistant", defuse(row[name])) for name in ("chosen", "rejected")}
    return {"id": row["id"], "prompt": prompt, **both}


def trl_sft(row: Row) -> dict[str, Any]:
    """TRL's prompt and completion, conversational: loss falls on the completion alone."""
    return {
        "id": row["id"],
        "prompt": turn("user", prompt_text(row, LEFT_OUT)),
        "completion": turn("assistant", completion(row)),
    }


def trl_grpo(row: Row) -> dict[str, Any]:
    """TRL's prompt; the other columns reach the reward function."""
    return {"prompt": turn("user", prompt_text(row, LEFT_OUT)), **extras(row, "prompt", "audios", "images")}


def swift_preference(row: Row) -> dict[str, Any]:
    """ms-swift: two texts as answer and `rejected_response`, two clips as two conversations with clips of their own."""
    ask, audios = turn("user", prompt_text(row, AUDIO)), list(row.get("audios") or [])
    if row.get("chosen") is not None:
        answered = {"messages": ask + turn("assistant", defuse(row["chosen"])), "audios": audios}
        return {"id": row["id"], **answered, "rejected_response": defuse(row["rejected"])}
    return {
        "id": row["id"],
        "messages": ask + turn("assistant", AUDIO),
        "audios": [*audios, row["chosen_audio"]],
        "rejected_messages": ask + turn("assistant", AUDIO),
        "rejected_audios": [*audios, row["rejected_audio"]],
    }


def swift_sft(row: Row) -> dict[str, Any]:
    """ms-swift: one conversation and its clips."""
    messages = turn("user", prompt_text(row, AUDIO)) + turn("assistant", completion(row))
    return {"id": row["id"], "messages": messages, **media(row)}


def swift_grpo(row: Row) -> dict[str, Any]:
    """ms-swift: the question and its clips; the other columns reach the reward function.

    A column whose name means something to ms-swift is called `extra_…`.
    """
    prompt = {"messages": turn("user", prompt_text(row, AUDIO)), **media(row)}
    others = extras(row, "prompt", "audios", "images")
    return {**prompt, **{f"extra_{name}" if name in SWIFT_WORDS else name: value for name, value in others.items()}}


def llama_factory_preference(row: Row) -> dict[str, Any]:
    """LLaMA-Factory's ranking rows in ShareGPT form, with OpenAI's names of roles."""
    return {
        "id": row["id"],
        "messages": turn("user", prompt_text(row, AUDIO)),
        "chosen": turn("assistant", defuse(row["chosen"]))[0],
        "rejected": turn("assistant", defuse(row["rejected"]))[0],
        "audios": list(row.get("audios") or []),
    }


def plain(row: Row) -> dict[str, Any]:
    """The view's own columns."""
    return {name: value for name, value in row.items() if name != "split"}


def clips_of(row: Row) -> dict[str, str]:
    """The row's clips by a short name: `chosen` for `chosen_audio`; `audio0`, … for those of the prompt."""
    named = {
        name.removesuffix("_audio").removesuffix("_image"): value
        for name, value in row.items()
        if names_file(name) and value
    }
    return {**named, **{f"audio{index}": clip for index, clip in enumerate(row.get("audios") or [])}}
