"""The judge of captions answers gold: clips with their own caption, and with another clip's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from earmark.flows.instruction_rubrics import build
from earmark.schemas.errors import ConfigError, Faults
from earmark.schemas.instruction_rubrics import CORPUS, InstructionRubrics
from earmark.schemas.questions import Audio, Text
from earmark.schemas.toml import parse_config
from earmark.tasks.annotation.request import Answer, Outcome, Request
from earmark.tasks.evaluation.qualification import qualify_alone
from earmark.tasks.store.versions import open_store
from tests.instruction_rubrics.rubrics import build_rubrics, caption, config_of, write_captions
from tests.runner import scripted

COUNT = 12


def judged(asked: list[tuple[str, str]], *, says: str | None = None) -> Callable[[Request], Outcome]:
    """A judge that knows which caption is whose, by the clip's file; or says one thing whatever it hears."""
    own = {f"{number}.wav": caption(number) for number in range(COUNT)}

    def answer(request: Request) -> Outcome:
        (clip,) = [Path(part.path).name for part in request.parts() if isinstance(part, Audio)]
        text = "".join(part.text for part in request.parts() if isinstance(part, Text))
        (shown,) = [number for number in range(COUNT) if caption(number) in text]
        asked.append((clip, caption(shown)))
        fits = "yes" if own[clip] == caption(shown) else "no"
        return Answer(request.key, {"answer": says or fits, "evidence": "heard"})

    return answer


def test_own_captions_fit_and_those_of_others_do_not(tmp_path: Path) -> None:
    source = write_captions(tmp_path, "one", [caption(number) for number in range(COUNT)])
    config = config_of(tmp_path, source)
    judge = config.judge.model_dump(exclude_unset=True)
    config = config_of(tmp_path, source, judge={**judge, "qualify": {"each": 5}})
    store, asked = open_store(str(tmp_path / "store")), list[tuple[str, str]]()
    with scripted(judged(asked)):
        figures, faults = qualify_alone(CORPUS, build.story, config, store)
    whole = figures[0]
    assert (whole["judge"], whole["dimension"], whole["known"], faults) == ("openai:hears", "fits", 10, [])
    assert (whole["accuracy"], whole["tpr"], whole["fpr"], whole["share_first"]) == (1.0, 1.0, 0.0, 0.5)
    assert len(set(asked)) == 10
    assert len({clip for clip, _ in asked}) == 5
    with scripted(judged([], says="yes")):
        figures, faults = qualify_alone(CORPUS, build.story, config, store)
        assert (figures[0]["accuracy"], figures[0]["tpr"], figures[0]["fpr"]) == (0.5, 1.0, 1.0)
        with pytest.raises(Faults, match=r"openai:hears on fits: 0\.500"):
            build_rubrics(config, tmp_path / "store")


def test_gold_and_controls_are_no_options_where_the_build_makes_its_own(tmp_path: Path) -> None:
    source = write_captions(tmp_path, "one", [caption(0)])
    for qualify in ({"gold": "votes.csv"}, {"controls": ["noise"]}):
        judge = {"model": "openai:m", "qualify": qualify}
        values = {"sources": [source], "judge": judge, "writer": {"model": "openai:m"}}
        with pytest.raises(ConfigError, match=r"is no option any more: the build asks about its own captions"):
            parse_config(InstructionRubrics, values, tmp_path / "c.toml")
