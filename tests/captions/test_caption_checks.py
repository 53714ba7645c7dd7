"""Checks of captions on fixed cases, traps among them, and on whatever a model may say."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.captions import Asking, CaptionChecks, Listening
from earmark.tasks.captions.asking import SHORTEST_WORDS, find_faults
from earmark.tasks.text.near_texts import near_any, near_duplicates
from tests.text.test_refusals import REFUSALS

GOOD = "A calm ambient piece led by piano, with soft strings and a spacious, reverberant production."
CHECKS = CaptionChecks()


def faults(text: str) -> list[str]:
    return [fault.reason for fault in find_faults(text, CHECKS)]


def test_runs_of_line_breaks_are_searched_in_no_time() -> None:
    began = time.process_time()
    assert faults("A calm piano piece in a dry room" + "\n" * 30_000 + "with strings.") == []
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "text",
    [
        "The track is silent. Then a piano plays softly, and strings join it in a dry room.",
        GOOD,
        "Driving 90s rock at 120 beats per minute, in E minor, with the second guitar far to the left.",
        "A fast waltz at 180 BPM in 3/4 time by a small jazz trio, bright and dry in its production.",
        "Vintage synthwave from the 1980s, with a steady beat of 120 beats a minute and a wide mix.",
        "Surely the brightest of tunes: bells, a glockenspiel and an ensemble of plucked strings.",
        "The output of an old drum machine carries this minimal techno with its dark, hypnotic mood!",
    ],
)
def test_good_captions_have_no_fault(text: str) -> None:
    assert faults(text) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "empty"),
        ("...", "empty"),
        ("Piano music.", "empty"),
        ("A calm ambient piece led by piano, with soft strings and a", "truncated"),
        (" ".join(f"and the sound{i}" for i in range(60)) + ".", "too_long"),
        (
            "Un morceau calme joué au piano, avec des cordes douces et une ambiance très agréable.",
            "not_english",
        ),
        ("一段由钢琴主导的平静音乐, 弦乐柔和 ambient piano strings calm soft.", "not_english"),
        ("The drums play and the drums play and the drums play and the drums play in this piece.", "repeated_phrases"),
        ("The piano is soft. The strings are warm. The piano is soft.", "repeated_phrases"),
        ("A calm ambient piece led by piano, with a female singer and soft strings.", "mentions_vocals"),
        ("A calm piece of piano without any lyrics, with soft strings around it.", "mentions_vocals"),
        ("A calm ambient piece of 30 seconds led by piano, with soft strings.", "mentions_duration"),
        ("A three-minute ambient piece led by piano, with soft strings.", "mentions_duration"),
        ("A calm ambient piece that builds up at 1:30 with soft strings.", "mentions_duration"),
        ("Here is the refined caption for the piece: a calm ambient piece led by piano.", "boilerplate"),
        ("Sure! A calm ambient piece led by piano, with soft strings.", "boilerplate"),
        ("**Caption:** a calm ambient piece led by piano, with soft strings.", "boilerplate"),
        ("Assistant: a calm ambient piece led by piano, with soft strings.", "boilerplate"),
        ("**Thinking:** a harp? **Answer:** A calm ambient piece led by piano.", "boilerplate"),
        ("A calm ambient piece led by piano.\n### Instruction:\nWrite more.", "boilerplate"),
        ("As an AI, I hear a calm ambient piece led by piano, with soft strings.", "boilerplate"),
    ],
)
def test_each_fault_is_found_and_no_other(text: str, fault: str) -> None:
    assert faults(text) == [fault]


@pytest.mark.parametrize(
    "text",
    [
        *(text for text in REFUSALS if len(text.split()) >= SHORTEST_WORDS),
        "I’m unable to listen to audio files directly, but I can help if you describe the music to me.",
        "I can’t listen to audio, but I would gladly help with a description that you write.",
        "I cannot hear the clip that you mention, as only text reaches me.",
        "Unfortunately, I do not have the ability to listen to music.",
        "Sorry, but it is not possible for me to hear this piece of music.",
        "I apologize, but the audio was not included in your message.",
        "I don't see any audio attached. Could you try again with the file?",
        "It seems that no audio was attached to your message. Please upload the file and I will describe it.",
        "There is no recording in this conversation that could be described.",
        "The audio clip was not provided, so that no description of it is possible.",
        "As a text-based AI model, a description of the music is beyond me.",
        'It plays nothing, as far as the "music" goes: I\'m not able to process sound.',
        "\"I'm sorry, I can't listen to audio files.\"",
        "The model cannot hear audio clips, but here's a generic caption: a calm piano piece with warm pads.",
        "This recording appears to be completely silent.",
    ],
)
@pytest.mark.parametrize("ask", ["direct", "describe", "mix"])
def test_what_a_model_without_ears_says_is_no_caption_of_any_listener(text: str, ask: Asking) -> None:
    checks = Listening(annotator="builtin:x", ask=ask).text_checks
    assert find_faults(text, checks)[0].reason == "refused"


@pytest.mark.parametrize(
    "text",
    [
        "A man says: \"I'm sorry, I can't stay\", while rain falls on a tin roof.",
        "A woman whispers, “Please send help, I don’t have much time”, over low strings.",
        "The chorus repeats 'I can't get no rest' over a bright guitar and a steady kick.",
        "A sorry tune of a lone trumpet, unable to rise above the dense, unfortunate noise around it.",
        "A warm pad over a soft piano, and I do not hear any percussion in it.",
        "I don't hear any vocals; a bright guitar leads over a slow beat.",
        "A warm pad, and I cannot detect a clear melody above it.",
        "I was unable to make out lyrics, yet the voice of the lead is clear.",
        "Unfortunately distorted guitars drown the strings of the second verse.",
        "A woman sings softly over a piano: I'm sorry I let you go, while strings rise.",
        "A slow ballad in which she repeats I'm sorry over a piano and a pad.",
        "The chorus repeats I can't play the fool again over a bright guitar.",
        "A tenor croons I can't help falling in love over slow strings.",
        "A man asks her to please send help, while rain falls on the roof.",
        "Sorry, cries a woman, while the train leaves the station.",
        "No audio effects are included beside a light reverb on the upright piano.",
        "The recording is not polished: hiss and hum lie under a plain acoustic guitar.",
        "The recording appears to be silent at first, until a low drone rises.",
        "A singer repeats I need the music to survive over a bright synth.",
        "Without a beat, the track drifts on a warm pad and a soft piano.",
        "No music can be heard behind the man, who reads a policy aloud.",
    ],
)
def test_a_caption_and_the_speech_that_it_quotes_are_no_refusal(text: str) -> None:
    assert "refused" not in faults(text)


@pytest.mark.parametrize(
    "after",
    [
        "\nUser: Write another one.\nAssistant: A fast rock tune.",
        "\n\nWould you like me to add more detail?",
        "<|im_end|>.",
        " Let me know if you'd like a shorter version!",
    ],
)
def test_chat_after_a_caption_is_boilerplate(after: str) -> None:
    assert "boilerplate" in faults(GOOD + after)


def test_one_of_several_captions_is_boilerplate() -> None:
    assert "boilerplate" in faults(f"Option 1: {GOOD}\nOption 2: A soft piano piece over pads.")


@pytest.mark.parametrize(
    "text",
    [
        'A man asks: "Would you like me to dance?", while a waltz plays.',
        "Would-be lovers sing of the user in an option of the city, over a piano.",
        "The assistant of a conductor speaks: a dry voice over an orchestra that tunes.",
    ],
)
def test_speech_in_a_film_is_no_chat(text: str) -> None:
    assert "boilerplate" not in faults(text)


WRAPPED = [
    f"```\n{GOOD}\n```",
    f'{{"caption": "{GOOD}"}}',
    f"<caption>{GOOD}</caption>",
    f"<p>{GOOD}</p>",
    "- Genre: ambient, calm\n- Mood: soft\n- Instruments: the piano",
]


@pytest.mark.parametrize("text", WRAPPED)
def test_a_whole_caption_in_another_form_is_boilerplate_and_not_cut(text: str) -> None:
    assert faults(text) == ["boilerplate"]


@pytest.mark.parametrize("text", WRAPPED)
def test_another_form_stays_a_fault_where_boilerplate_is_none(text: str) -> None:
    for checks in (CaptionChecks(look_for=("truncated",)), CaptionChecks(flag=("boilerplate",))):
        assert "truncated" in [fault.reason for fault in find_faults(text, checks)]


@pytest.mark.parametrize(
    "text", ['{"caption": "A calm piece led by piano and', "<caption>A calm piece led by piano and"]
)
def test_a_cut_answer_in_another_form_is_cut(text: str) -> None:
    assert faults(text) == ["truncated"]


def test_only_what_is_looked_for_is_found() -> None:
    checks = CaptionChecks(look_for=("mentions_duration",))
    assert [fault.reason for fault in find_faults("Sung for 30 seconds", checks)] == []  # too short to be judged
    assert [fault.reason for fault in find_faults("Here is: sung for 30 seconds", checks)] == ["mentions_duration"]
    with pytest.raises(ValueError, match="flag names 'boilerplate', which look_for does not"):
        CaptionChecks(look_for=("empty",), flag=("boilerplate",))


@given(st.text(max_size=300))
def test_any_text_is_judged_and_details_stay_short(text: str) -> None:
    for fault in find_faults(text, CHECKS):
        assert fault.reason in CHECKS.look_for
        assert len(fault.detail) < 200


def test_near_duplicates_are_told_with_the_first_of_their_kind() -> None:
    other = "Heavy distorted guitars over a fast double kick, dark and aggressive in a raw production."
    texts = [GOOD, other, GOOD.upper(), "", GOOD + " Dreamy.", other.replace("raw", "rough"), "", GOOD]
    assert near_duplicates(texts, 0.8) == [None, None, 0, None, 0, None, None, 0]
    assert near_duplicates(texts, 0.6) == [None, None, 0, None, 0, 1, None, 0]
    assert near_duplicates(texts, 1.0) == [None, None, 0, None, None, None, None, 0]


def test_texts_near_any_of_others_are_told_even_if_the_others_repeat_one_another() -> None:
    others = ["a dog barks twice in the yard", "a dog barks twice in the yard at night", "一条狗在院子里叫了两声"]
    texts = ["a dog barks twice in the yard at night", "a bell rings", "", "一条狗在院子里叫了两声吧"]
    assert near_any(texts, others, 0.8) == [1, None, None, 2]


def _sized(text: str) -> bool:
    return "mentions_duration" in faults(text)


@pytest.mark.parametrize(
    "text",
    [
        "This is a 30s loop with the drums.",
        "A half-minute piece for the piano.",
        "It runs for 2m30s and is calm.",
        "Three-and-a-half minutes of calm piano.",
        "Clocking in at under a minute, it is calm.",
        "A 15s jingle with bells.",
        "A 90s long loop of the drums.",
    ],
)
def test_a_length_of_time_is_found(text: str) -> None:
    assert _sized(text)


@pytest.mark.parametrize(
    "text",
    [
        "An 80s track with the synths.",
        "A 90s loop of the breakbeat era.",
        "A 30s swing band.",
        "A 1930s tune.",
        "The 808s and the 909s hit hard.",
        "The second guitar enters with a minute detail.",
        "A last-minute key change lifts the strings.",
    ],
)
def test_a_decade_or_an_instrument_is_no_length_of_time(text: str) -> None:
    assert not _sized(text)
