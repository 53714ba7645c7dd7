"""Labelled questions of a config's own: shown to the labeller, in the build key, refused in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.errors import InputError
from earmark.schemas.questions import Text
from earmark.schemas.score_questions import CATEGORIES, CORPUS, DIFFICULTIES, LABELLED, ScoreQuestions
from earmark.tasks.annotation.request import Request
from earmark.tasks.pipeline.ask import prompt_digests
from earmark.tasks.pipeline.inputs import digest_inputs
from earmark.tasks.score_questions.examples import examples_of
from earmark.tasks.score_questions.requests import LABELS
from earmark.tasks.score_questions.writing import ASKS, LABEL
from earmark.tasks.store.versions import open_store
from tests.conftest import ROOT
from tests.score_questions.questions import build_questions, config_of, rows_of, thread

OURS = {label: ROOT / f"deploy/configs/score-questions-{label}.jsonl" for label in LABELLED}
DRAFT = {"question": "What is it?", "truth_text": "A dash", "other_texts": ["A dot"], "distractors": ["A slur"]}


def with_examples(folder: Path, **lines: str) -> ScoreQuestions:
    """A config whose examples are these texts."""
    for label, text in lines.items():
        (folder / f"{label}.jsonl").write_text(text, "utf-8")
    return config_of(folder, **{label: f"{label}.jsonl" for label in lines})


def asked(config: ScoreQuestions, label: str) -> Request:
    return LABEL.pose(config, {**DRAFT, "label": label}).request


def words(request: Request) -> str:
    return "\n".join(part.text for part in request.parts() if isinstance(part, Text))


@pytest.mark.parametrize("label", LABELLED)
def test_ours_are_read_and_each_is_shown(tmp_path: Path, label: str) -> None:
    shutil.copy(OURS[label], tmp_path / "mine.jsonl")
    config = config_of(tmp_path, **{label: "mine.jsonl"})
    rows = [json.loads(line) for line in OURS[label].read_text("utf-8").splitlines()]
    text = words(asked(config, label))
    assert all(row["question"] in text for row in rows)
    wanted = DIFFICULTIES if label == "difficulty" else [sub for subs in CATEGORIES.values() for sub in subs]
    assert {row[LABELLED[label][-1]] for row in rows} == set(wanted)


def test_examples_change_the_requests_about_their_label_and_no_others(tmp_path: Path) -> None:
    plain = config_of(tmp_path)
    one = with_examples(tmp_path, difficulty='{"question": "Why a dot?", "difficulty": "hard"}\n')
    assert asked(one, "taxonomy").key == asked(plain, "taxonomy").key
    assert asked(one, "difficulty").key != asked(plain, "difficulty").key
    before = asked(one, "difficulty").key
    again = with_examples(tmp_path, difficulty='{"question": "Why a dash?", "difficulty": "hard"}\n')
    assert asked(again, "difficulty").key != before  # the file is read anew
    assert set(prompt_digests(plain, ASKS)) - set(prompt_digests(one, ASKS)) == {f"{LABELS['difficulty']}@1"}


def test_the_files_content_is_an_input_and_its_place_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", "x" * 32)
    store = open_store(str(tmp_path / "store"))
    line = '{"question": "Why a dot?", "difficulty": "hard"}'
    one = with_examples(tmp_path, difficulty=line)
    digests = digest_inputs(CORPUS, one, store)
    assert "difficulty.examples" in digests
    assert "difficulty.examples" not in digest_inputs(CORPUS, config_of(tmp_path), store)
    (tmp_path / "elsewhere.jsonl").write_text(line, "utf-8")
    moved = config_of(tmp_path, difficulty="elsewhere.jsonl")
    assert (digest_inputs(CORPUS, moved, store), moved.identity()) == (digests, one.identity())
    assert digest_inputs(CORPUS, with_examples(tmp_path, difficulty=line.replace("hard", "easy")), store) != digests


def test_a_build_with_examples_says_so_in_its_prompts(tmp_path: Path) -> None:
    config = with_examples(tmp_path, difficulty='{"question": "Why a dot?", "difficulty": "hard"}\n')
    version = build_questions(config, tmp_path / "store", [thread(1), thread(2)])
    assert len(rows_of(version, "questions")) == 2
    assert f"{LABELS['difficulty']}-examples@1" in version.manifest.prompts
    assert f"{LABELS['difficulty']}@1" not in version.manifest.prompts


@pytest.mark.parametrize(
    ("label", "text", "says"),
    [
        ("difficulty", "", "expected 1 to 50 examples, a JSON object a line, found 0"),
        ("difficulty", '{"question": "Why?"}', "line 1: expected a JSON object with question, difficulty, found"),
        ("difficulty", "\n[]", "line 2: expected a JSON object with question, difficulty, found '\\[\\]'"),
        ("difficulty", '{"question": "", "difficulty": "easy"}', "line 1: expected text in question"),
        ("difficulty", '{"question": "Why?", "difficulty": "harder"}', "expected one of easy, medium, hard in difficu"),
        ("taxonomy", '{"question": "Why?", "category": "Form", "subcategory": "orchestral"}',
         "expected one of phrase structure, contrapuntal forms in subcategory, found 'orchestral'"),
    ],
)  # fmt: skip
def test_what_is_no_example_is_refused_in_one_line(tmp_path: Path, label: str, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        examples_of(with_examples(tmp_path, **{label: text}), label)
    assert f"{label}.jsonl (key `{label}.examples`)" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_line_ends_where_json_lines_do(tmp_path: Path) -> None:
    """JSON may hold U+2028 and U+0085 as they are, and writers leave them."""
    line = '{"question": "One\u2028two\x85three?", "difficulty": "easy"}\r\n'
    (example,) = examples_of(with_examples(tmp_path, difficulty=line), "difficulty")
    assert example["question"] == "One\u2028two\x85three?"


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    missing: Any = config_of(tmp_path, difficulty="none.jsonl")
    with pytest.raises(InputError, match=r"none.jsonl"):
        examples_of(missing, "difficulty")
    config = with_examples(tmp_path, difficulty="")
    (tmp_path / "difficulty.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        examples_of(config, "difficulty")
