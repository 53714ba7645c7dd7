"""Text from outside in the shapes of trainers: it brings no marker, and pieces fit clips."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.exports import shapes

SIGNS = ("<", "|", ">", "/", "[", "]", " ", "INST", "audio", "é", "<audio>", "<|im_end|>", "[INST]", "</s>")


TEXT = st.lists(st.sampled_from(SIGNS)).map("".join)


@given(TEXT, st.lists(TEXT, min_size=3, max_size=3))
def test_text_from_outside_brings_no_marker(text: str, pieces: list[str]) -> None:
    row = {"id": "1", "prompt": pieces, "audios": ["x", "y"], "chosen": text, "rejected": "no"}
    swift = shapes.swift_preference(row)
    said = json.dumps(swift)
    assert said.count("<audio>") == 2
    for marker in ("<|im_end|>", "[INST]", "</s>"):
        assert marker not in said
    assert json.loads(said) == swift
    assert shapes.defuse(shapes.defuse(text)) == shapes.defuse(text)


def test_ordinary_text_is_left_alone() -> None:
    for text in ("a < b > c", "<b>bold</b>", "AC|DC [live]", "5 <3 |x| > 2", "Dvořák: «Largo»"):
        assert shapes.defuse(text) == text


def test_pieces_and_clips_must_fit() -> None:
    with pytest.raises(ValueError, match="one text piece more than clips, found 2 pieces and 2"):
        shapes.prompt_text({"prompt": ["a", "b"], "audios": ["x", "y"]}, "<audio>")
