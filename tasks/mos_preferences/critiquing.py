"""Critiques (MOS-RMBench): what a critic is asked about clips and pairs of clips, and which answers are valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from earmark.schemas.critiques import ASPECTS, CRITIQUES, PAIRED_CRITIQUES, Critiques
from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.rewards import final_scores, prefers
from earmark.tasks.annotation.prompts import Prompt, prompt_named
from earmark.tasks.annotation.request import Audio, AudioForm
from earmark.tasks.build.ask import Ask, Asker, GivenUp, Posed, Row, pose
from earmark.tasks.build.checks import Fault
from earmark.tasks.build.forecast import imagined
from earmark.tasks.build.walk import walk
from earmark.tasks.mos_preferences.audio import find_audio, root_of

PROMPT_OF = {"single": "speech-critique", "paired": "speech-critique-pair"}
WITH_FREE_TEXT = {**PROMPT_OF, "single": "speech-critique-free"}
SIDES = {"single": ("first",), "paired": ("first", "second")}


def prompt_of(critiques: Critiques, kind: str) -> Prompt:
    """The prompt that asks about single clips or about pairs."""
    return prompt_named((WITH_FREE_TEXT if critiques.free_text else PROMPT_OF)[kind])


def kinds_asked(critiques: Critiques | None) -> list[str]:
    """Which kinds of questions a config asks."""
    if critiques is None:
        return []
    return [kind for kind, count in (("single", critiques.clips), ("paired", critiques.pairs)) if count != 0]


def prompt_digests(critiques: Critiques | None) -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    if critiques is None:
        return {}
    return {prompt.id: prompt.sha256 for prompt in (prompt_of(critiques, kind) for kind in kinds_asked(critiques))}


def critique_request(config: MosPreferences, row: Row) -> Posed:
    """The question about a clip or pair, a row of `critique_questions.sql` with hash and length of its clips.

    Nothing but the clips' audio reaches the model: no id, no file name, no MOS.
    """
    assert config.critiques is not None
    form = AudioForm(**config.critiques.hearing.model_dump())
    source = next(one for one in config.sources if one.name == row["dataset"])
    folder, clips = root_of(config, source).folder, {}
    for side in SIDES[row["kind"]]:
        path = find_audio(folder, row[f"{side}_file"], row[f"{side}_audio"])
        clips[side] = Audio(row[f"{side}_sha256"], str(path), duration_s=row[f"{side}_duration_s"], form=form)
    values = {"clip": clips["first"]} if row["kind"] == "single" else clips
    free = {"free_text": True} if config.critiques.free_text and row["kind"] == "single" else None
    return pose(config.critiques, prompt_of(config.critiques, row["kind"]), free, **values)


def pair_fault(text: str, row: Mapping[str, Any]) -> Fault | None:
    """What is wrong with a comparison: no scores on its last line, a missing part, or scores that the listeners do not
    share."""
    scores = final_scores(text)
    if scores is None:
        last = text.strip().rpartition("\n")[2][:80]
        return Fault("scores_unreadable", f"expected the last line 'Final Scores: [[x, y]]', found {last!r}")
    rationale = text.casefold()
    missing = [aspect for aspect in ASPECTS if f"{aspect}:" not in rationale]
    if missing:
        return Fault("part_missing", f"expected a part on {missing[0]}; scores {scores[0]} and {scores[1]}")
    if prefers(scores) != row["better"]:
        return Fault(
            "scores_disagree",
            f"expected a higher score for the {row['better']} clip, found {scores[0]} and {scores[1]} "
            f"(MOS {row['first_mos']:.2f} and {row['second_mos']:.2f})",
        )
    return None


def imagine_description(config: MosPreferences, row: Row) -> dict[str, str]:
    """What a dry run takes for an answer."""
    assert config.critiques is not None
    free = {"free_text": imagined(60)} if config.critiques.free_text else {}
    return dict.fromkeys(ASPECTS, imagined(20)) | free


DESCRIBE = Ask(
    CRITIQUES.name,
    "critic",
    critique_request,
    imagine_description,
    tries=lambda config: 1,  # a description has no check that it could fail
    about="clips",
)
COMPARE = Ask(
    PAIRED_CRITIQUES.name,
    "critic",
    critique_request,
    imagine=lambda config, row: imagined(200),
    check=lambda config, row, text: pair_fault(text, row),
    about="pairs",
)
ASK_OF = {"single": DESCRIBE, "paired": COMPARE}


@walk("critique", asks=[DESCRIBE, COMPARE], columns=[("kind", pa.string()), ("item", pa.string())])
async def critique(asker: Asker[MosPreferences], question: Row) -> None:
    """Describe a clip, or compare a pair until the scores agree with the listeners."""
    ask = ASK_OF[question["kind"]]
    if question["reason"]:
        raise GivenUp(ask.name, question["reason"], question["detail"])
    await asker(ask, question)
