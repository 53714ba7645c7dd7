"""Refusals, told from sound sentences that speak of silence, regret and what is not heard."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.tasks.text import refusals
from earmark.tasks.text.refusals import _SPOKEN, _UNSEEN, count_words, find_refusal, unquoted

REFUSALS = [
    "I cannot listen to audio files.",
    "I'm sorry, but as an AI language model I cannot hear the clip.",
    "As an AI language model I cannot hear the clip.",
    "The audio was not provided.",
    "No audio attached, so no assessment is possible.",
    "Unable to assess.",
    "Cannot be assessed.",
    "Not applicable.",
    "抱歉，我无法收听音频。",
    "I'm unable to hear audio files, so I cannot compare them.",
    "As a text-based AI I cannot process audio.",
    "As an AI, I cannot answer this question.",
    "As an AI, we do not hear it.",
    "I'm sorry, I cannot help with writing this question.",
    "I did not receive any audio.",
    "I have not received the recording.",
    "Hmm, I don't hear anything in this recording.",
    "I can’t hear anything.",
    "I cannot hear the audio you sent.",
    "I can't analyze the audio content.",
    "I don't have access to the clip.",
    "I do not see any audio file here.",
    "This request violates our content policy.",
    "The model cannot hear audio clips, but here's a generic caption: a calm piano piece.",
    "Without hearing the track, a likely description would be a calm piano piece with soft pads.",
    "Audio input is not supported by this model.",
    "It seems that the audio didn't come through. Could you try again?",
    "The provided audio appears to be silent or contains only noise, so no music can be described.",
    "I need the audio clip to write a caption for this music.",
    "Not able to process the clip.",
    "My apologies, the file could not be opened.",
    "I won't describe copyrighted music.",
    "Content blocked by safety policy.",
    "[Audio unavailable]",
]
SOUND = [
    "I cannot hear any distortion.",
    "I do not hear any audio degradation.",
    "I cannot hear any audio anomalies in this clip.",
    "I do not hear any clips or pops.",
    "I do not hear any recording hum.",
    "I do not hear the audio breaking up.",
    "I cannot hear the music clearly because of noise.",
    "The audio is not available on the left channel.",
    "A narrator explains the platform's content policy over soft piano.",
    "I cannot hear any audio artefacts in either clip.",
    "I can't hear any music in the background.",
    "I can't hear any sound between the words.",
    "I don't hear any audio dropouts.",
    "I do not hear any audio noise at all.",
    "I do not hear anything unnatural in this recording.",
    "I don't hear anything, apart from the voice.",
    "I don't hear anything in this recording that is distorted.",
    "There is no audible noise.",
    "No noise can be heard.",
    "No sound can be heard in the pauses.",
    "No music can be heard behind the speaker.",
    "Unfortunately, there is constant hiss.",
    "Unfortunately, it is marred by clipping.",
    "Unfortunately I cannot hear the consonants well.",
    "The voice says \"I'm sorry, I can't listen to the recording\" without any noise.",
    "A man's voice says sorry in a natural tone.",
    "The speaker sounds sorry, and unable to go on.",
    "The audio is missing high frequencies.",
    "The audio is not clipped.",
    "The audio did not come through clearly at the end.",
    "The clip appears to be silent at first.",
    "The recording is not polished: hiss and hum lie under the voice.",
    "Unable to rise above the noise, the voice is hard to understand.",
    "The harmonic content is filtered by a low pass.",
    "High-frequency content was removed by the codec.",
    "The speaker cannot process the word and stutters.",
    "The model of speech is robotic and without stress.",
    "It is possible to judge the room by its echo.",
    "Without music, the voice stands alone in a dry room.",
    "No drop-outs, no cuts, no interruptions.",
    "The voice asks whether the policy was sent.",
    "没有噪音。",
]
UNSEEN = [
    "I'm sorry, I cannot see the attached score.",
    "I cannot see the image.",
    "I can't read the sheet music that you sent.",
    "Unable to write this without an image.",
    "No image was provided.",
    "I do not see any attached score.",
]
OPTIONS = [
    "Unfortunately, it is a misprint for B flat.",
    "The player cannot see the score in the dark.",
    "The image of the theme returns without its upbeat.",
    "No note is attached to the stem.",
    "Unable to resolve, the chord stays suspended.",
    "As an appoggiatura, it cannot last longer than one beat.",
    "It is a dominant seventh chord in root position.",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_a_refusal_is_found(text: str) -> None:
    assert find_refusal(text)


@pytest.mark.parametrize("text", SOUND)
def test_what_is_not_heard_in_a_clip_is_no_refusal(text: str) -> None:
    assert find_refusal(text) is None
    assert count_words(text) >= 2


@pytest.mark.parametrize("text", UNSEEN)
def test_an_unseen_image_is_a_refusal_where_one_was_shown(text: str) -> None:
    assert find_refusal(text, of_image=True)


@pytest.mark.parametrize("text", [*OPTIONS, *SOUND])
def test_statements_about_music_are_no_refusal_of_an_image(text: str) -> None:
    assert find_refusal(text, of_image=True) is None


@pytest.mark.parametrize("text", ["", "N/A", "n / a", "...", "…", "-", "null", "TODO", "to do", "None."])
def test_a_placeholder_has_fewer_than_two_words(text: str) -> None:
    assert count_words(text) < 2


def alternatives(pattern: re.Pattern[str]) -> Iterator[re.Pattern[str]]:
    """Yield a pattern for each alternative of a pattern."""
    depth, part = 0, ""
    for sign in [*re.findall(r"\\.|\[(?:\\.|[^\]])*\]|.", pattern.pattern), "|"]:
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and not depth:
            yield re.compile(part, pattern.flags)
            part = ""
        else:
            part += sign


@settings(max_examples=800)
@given(st.sampled_from([*alternatives(_SPOKEN), *alternatives(_UNSEEN)]).flatmap(st.from_regex))
def test_a_refusal_in_any_form_has_a_sign_of_it(text: str) -> None:
    plain = unquoted(text)
    found = _SPOKEN.search(plain) or _UNSEEN.search(plain)
    assert find_refusal(text, of_image=True) == (found and found[0].strip())


def test_an_answer_without_a_sign_of_refusal_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_SPOKEN", None)  # would fail if it were asked
    assert find_refusal("Warm brushed drums, an airy pad and significant hiss on both clips.") is None


def test_long_texts_take_no_time() -> None:
    began = time.process_time()
    for piece in ("I cannot ", "as an ai ", "no audio ", "sorry, ", "the audio is ", 'a "', "please send a b "):
        find_refusal(piece * (60_000 // len(piece)), of_image=True)
    assert time.process_time() - began < 5
