"""Declare the views and evaluations of `instruction-rubrics`."""

from collections.abc import Mapping
from typing import Any

from earmark.schemas.corpus import View, Writer
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.rubric_rewards import global_reward, rubric_reward

_ASK = {
    "ask_en": (
        "Listen to the clip and check it against the instruction, item by item. Answer yes if the clip does what the "
        "item asks, and no if it does something else or nothing of the kind; give as evidence one sentence on what you "
        "hear that decides it. Answer for every item by its number, in order, with one JSON array and nothing else: "
        '[{"id": 1, "answer": "yes" | "no", "evidence": "…"}, …]'
    ),
    "ask_zh": (
        "请听音频，并对照指令逐项检查。音频做到了该项所问，回答 yes；音频是另一种情况，或者没有相关内容，回答 no；"
        "以 evidence 用一句话说明你听到的、决定该回答的内容。按编号依次回答每一项，只输出一个 JSON 数组："
        '[{"id": 1, "answer": "yes" | "no", "evidence": "…"}, …]'
    ),
}

_RELEASED = Writer(
    "anyaudio-judge-bench",
    "earmark.tasks.instruction_rubrics.released:write",
    ".parquet",
    "AnyAudio-Judge's `evaluate_benchmark.py`, and `earmark eval run FOLDER --layout anyaudio-judge-bench`",
    audio=True,
    configs=("en", "zh"),
)


def _reward(text: str, row: Mapping[str, Any]) -> tuple[float, bool]:
    follows = row["answers"], row["follows"]
    return rubric_reward(text, *follows), global_reward(text, *follows) == 1


VIEWS = (
    View(
        "judge-sft",
        "sft",
        "instruction_rubrics/judge_sft",
        "A clip, an instruction and its items; the answer is a JSON array of {id, answer, evidence}.",
        _ASK,
    ),
    View(
        "judge-grpo",
        "grpo",
        "instruction_rubrics/judge_grpo",
        "The same question, with what the rewards of `schemas/rubric_rewards.py` need: `answers`, `follows`.",
        _ASK,
        reward=_reward,
    ),
    *(
        View(
            f"bench{end}",
            "rows",
            "instruction_rubrics/bench_rows",
            f"The layout of AnyAudio-Judge's bench: audio, caption, label, type, subset, rubric; questions {says}.",
            {"rubric": rubric},
            writers=(_RELEASED,),
        )
        for end, rubric, says in (
            ("", "own", "in the row's language"),
            ("-asked-in-zh", "zh", "in Chinese, as released"),
            ("-asked-in-en", "en", "in English"),
        )
    ),
)

EVALUATIONS = (
    Evaluation(
        "alignment",
        "yes_no",
        "instruction_rubrics/aligned",
        "Does the clip follow the instruction? (AnyAudio-Judge)",
        modes=(
            Mode(
                "rubric",
                "rubric-judge-item-{language}",
                ("clip=clip_audio", "item"),
                items="questions",
                says="Each item by itself; the score is the mean of their probabilities.",
            ),
            Mode(
                "array",
                "rubric-judge-{language}",
                ("clip=clip_audio", "instruction"),
                items="questions",
                together=True,
                says="All items in one JSON array, as `judge-sft` teaches it.",
            ),
            Mode(
                "holistic",
                "rubric-judge-holistic-{language}",
                ("clip=clip_audio", "instruction"),
                says="The whole at once.",
            ),
        ),
        groups=("subset", "language", "subset+language", "kind", "domain", "length", "generator"),
    ),
    Evaluation(
        "items",
        "yes_no",
        "instruction_rubrics/labelled_items",
        "Does the clip do what one item asks? The labels of items, each by itself.",
        modes=(
            Mode(
                "item",
                "rubric-judge-item-{language}",
                ("clip=clip_audio", "item=question"),
                says="The item alone, without the instruction that it is of.",
            ),
        ),
        groups=("kind", "domain", "subset", "language", "dimension", "labelled_by"),
        beside=True,
        asks="Does the clip do what the question asks?",
    ),
)
