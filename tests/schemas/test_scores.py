"""Scores as models write them: form is forgiven, content is not, and the training rewards forgive neither."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.critiques import parts_under, read_scores, scores_fault, with_final_line
from earmark.schemas.rewards import UNREADABLE, accuracy_reward, final_scores

WRITTEN = [
    "Final Scores: [[7,5]]",
    "Final Scores: [[7.0, 5.0]]",
    "**Final Scores: [[7, 5]]**",
    "**Final Scores:** [[7, 5]]",
    "**Final Scores**: **[[7, 5]]**",
    "Final Scores: [[**7**, **5**]]",
    "### Final Scores\n[[7, 5]]",
    "### 5. Final Scores:\n\n[[7, 5]]",
    "Final Scores: [[7, 5]].",
    "Final Scores: [[7, 5]]. Clip 1 is the better one.",
    "Final Scores: [[7, 5]]\n\nClip 1 is cleaner: clip 2 has 3 drop-outs.",
    "Final Score: [[7, 5]]",
    "final scores = [[7, 5]]",
    "The final scores are: [[7, 5]]",
    "Final Scores: [7, 5]",
    "Final Scores: (7, 5)",
    "Final Scores: [[7], [5]]",
    "Final Scores: 7, 5",
    "Final Scores: [[7/10, 5/10]]",
    "Final Scores： ［［7， 5］］",
    "Final Scores：【【7，5】】。",
    "Final Scores: [[７，５]]",
    "Final Scores: \\[\\[7, 5\\]\\]",
    "Final Scores: $\\boxed{[[7, 5]]}$",
    "Final Scores: `[[7, 5]]`",
    "```\nFinal Scores: [[7, 5]]\n```",
    "> Final Scores: [[ 7 , 5 ]]",
    "Final Scores: [[Audio 1: 7, Audio 2: 5]]",
    "Final Scores: [[clip1_score: 7, clip2_score: 5]]",
    "Final Scores:\n- Clip 1: 7\n- Clip 2: 5".replace("- ", ""),
    "Final Scores (clip 1, clip 2): [[7, 5]]",
    "Final Scores (clip 1 first, clip 2 second): [[7, 5]]",
    "Final Scores: [[7, 5]] (clip 2 is noisier than clip 1)",
    "Final Scores: [[7, 5]]\nOn reflection, the same:\nFinal Scores: [[7, 5]]",
    "[[7, 5]]",
    "Final Scores: [[clip1_score, clip2_score]]\nFinal Scores: [[7, 5]]!",
    "At first [[6, 6]], but no.\nFinal Scores: [[7,5]]",
    "Clip 1: 7/10\nClip 2: 5/10\nFinal Scores: [[7, 5]]",
    "Noise: clip 1: 5, clip 2: 7\nDistortion: clip 1: 9, clip 2: 4\nFinal Scores: [[7, 5]]",
    "3 out of 5 words are lost in clip 2, which first drops out early; clip 1 is 5 dB louder.\nFinal Scores: [[7, 5]]",
    "The first score is higher than that of clip 2: both out of 10.\nFinal Scores: [[7, 5]]",
    "Unlike the first one, clip 2 has constant hiss.\nFinal Scores: [[7, 5]]",
    "There is hum in the range of 0-4 kHz, and a burst (0-5) seconds in.\nFinal Scores: [[7, 5]]",
    "音频2在前半段有噪声。\nFinal Scores: [[7, 5]]",
    "After hearing clip 2 first, then clip 1, both have drop-outs, in 3 out of 4.\nFinal Scores: [[7, 5]]",
]
UNCERTAIN = [
    "",
    "Both are fine.",
    "Final Scores: [[0, 5]]",
    "Final Scores: [[5, 11]]",
    "Final Scores: [[100, 5]]",
    "Final Scores: [[05, 1]]",
    "Final Scores: [[-5, 4]]",
    "Final Scores: [[7.5, 5]]",
    "Final Scores: [[7.05, 5]]",
    "Final Scores: [[7, 5, 3]]",
    "Final Scores: 7, 5, 3",
    "Final Scores: 7,5",
    "Final Scores: 7/10",
    "Final Score: 8",
    "Final Scores: [[7]]",
    "[7, 5]",
    "Final Scores: [[٥, ٤]]",
    "Final Scores: [[clip1_score, clip2_score]]",
    "Final Scores: [[Audio 2: 7, Audio 1: 5]]",
    "Final Scores: [[7.5, 5]], rounded [[7, 5]]",
    "Final Scores: [[7, 5]], or [[5, 7]].",
    "Final Scores: [[7, 5], [5, 7]]",
    "Final Scores: [[7, 5]]\nFinal Scores: [[5, 7]].",
    "[[7, 5]] at first, then [[5, 7]]",
    "Final Scores: [[5, 7]]\nOn reflection:\nFinal Scores: [[7, 5]]",
    "Final Scores: [[7.5, 5]]\nFinal Scores: [[7, 5]]",
    "Final Scores (clip 2, clip 1): [[7, 5]]",
    "Final Scores [clip2, clip1]: [[7, 5]]",
    "Final Scores (order: second clip, first clip): [[7, 5]]",
    "Final Scores (2, 1): [[7, 5]]",
    "Final Scores: [[7, 5]] (clip 2 first)",
    "The first number is clip 2.\nFinal Scores: [[7, 5]]",
    "The first score belongs to the second clip.\nFinal Scores: [[7, 5]]",
    "Scores are given as [clip 2, clip 1].\nFinal Scores: [[7, 5]]",
    "Final Scores (B, A): [[7, 5]]",
    "Final Scores: [[7, 5]], where the first score is for clip 2",
    "Clip 1: 5/10\nClip 2: 7/10\nFinal Scores: [[7, 5]]",
    "I give clip 2 a 7 and clip 1 a 5.\nFinal Scores: [[7, 5]]",
    "The scores are in reverse order.\nFinal Scores: [[7, 5]]",
    "评分顺序为片段2、片段1。\nFinal Scores: [[7, 5]]",
    "Clip 1: 4/5, clip 2: 2/5\nFinal Scores: [[4, 2]]",
    "On a scale of 1 to 5:\nFinal Scores: [[4, 2]]",
    "Final Scores (out of 5): [[4, 2]]",
    "Final Scores (1-5): [[4, 2]]",
    "Final Scores: [[4, 2]] out of five",
    "满分5分。\nFinal Scores: [[4, 2]]",
]


@pytest.mark.parametrize("end", WRITTEN)
@pytest.mark.parametrize("before", ["", "**Noise**: clip 1 has 2 clicks.\n\n"])
def test_scores_are_read_whatever_their_form(before: str, end: str) -> None:
    text = before + end
    assert read_scores(text) == (7, 5)
    kept = with_final_line(text)
    assert final_scores(kept) == (7, 5)
    assert kept.startswith(before.strip())
    assert with_final_line(kept) == kept


SENTENCES = ["Final score: 7/10 for clip 1 and 5/10 for clip 2.", "Final Scores: 7 vs 5", "Final scores: 7 (clip 1), 5"]


@pytest.mark.parametrize("before", SENTENCES)
def test_sentences_of_scores_before_the_exact_line_leave_it_as_it_is(before: str) -> None:
    assert read_scores(f"{before}\n\nFinal Scores: [[7, 5]]") == (7, 5)


@pytest.mark.parametrize("text", UNCERTAIN)
def test_scores_that_are_not_certain_are_none(text: str) -> None:
    assert read_scores(text) is None
    with pytest.raises(ValueError, match="expected scores"):
        with_final_line(text)


def test_a_fault_names_the_words_that_turn_the_scores() -> None:
    assert "'[clip 2, clip 1]'" in scores_fault("Scores as [clip 2, clip 1].\nFinal Scores: [[7, 5]]")
    assert "'out of 5'" in scores_fault("Each is out of 5.\nFinal Scores: [[4, 2]]")
    assert "'Clip 2 wins'" in scores_fault("Both are fine.\nClip 2 wins")


def test_the_training_reward_reads_the_exact_line_alone() -> None:
    loose = [text for text in WRITTEN if not text.endswith("\nFinal Scores: [[7, 5]]")]
    assert all(accuracy_reward(text, "first") == UNREADABLE for text in loose)
    assert accuracy_reward("Noise: none.\nFinal Scores: [[7, 5]]", "first") == 1.0


@given(st.text(alphabet="Final Scores: [[10, 9]]\n.*#５，［") | st.text(), st.integers(1, 10), st.integers(1, 10))
def test_what_the_reward_reads_every_reader_reads_alike(before: str, first: int, second: int) -> None:
    exact = f"{before}\nFinal Scores: [[{first}, {second}]]"
    found = read_scores(before)
    assert final_scores(exact) == (first, second)
    if "final" not in before.casefold():  # no earlier scores, which may contradict
        assert read_scores(exact) == (first, second)
    assert read_scores(exact) in ((first, second), None)
    if read_scores(exact):
        assert with_final_line(exact) == exact.strip()
    assert found is None or all(1 <= score <= 10 for score in found)


@pytest.mark.parametrize(
    "line",
    [
        "Noise: none", "noise : none", "**Noise**: none", "**Noise:** none", "### Noise\nnone", "1. Noise: none",
        "**1. Noise**\nnone", "2) Noise\nnone", "- **Noise** – none", "| Noise | none |", "Noise (both clips): none",
        "## Background noise\nnone", "Noise：none", '"noise": "none"',
    ],
)  # fmt: skip
def test_parts_are_found_by_their_headings(line: str) -> None:
    assert "none" in parts_under(f"Distortion: some\n{line}\nContinuity: fine")["noise"]


@pytest.mark.parametrize("text", ["There is noise in it.", "the noise is - loud", "Annoise", ""])
def test_a_word_in_a_sentence_is_no_heading(text: str) -> None:
    assert parts_under(f"Distortion: some\n{text}")["noise"] == ""


def test_a_part_ends_at_the_next_heading_and_may_be_empty() -> None:
    text = "Noise:\nDistortion: clip 1 clips\nand clip 2 does not\nNaturalness:\n\nFinal Scores: [[8, 3]]"
    parts = parts_under(text)
    assert [*parts.values()] == ["", "clip 1 clips\nand clip 2 does not", "", ""]


def test_reading_long_answers_takes_no_time() -> None:
    began = time.process_time()
    for piece in ("final scores ", "[[", "[[7, ", "noise ", "\n", "# ", "final scores: [[7 , ", "\n---", "clip 1: 7\n"):
        text = piece * (120_000 // len(piece))
        read_scores(text)
        parts_under(text)
    assert time.process_time() - began < 5
