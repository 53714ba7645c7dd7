"""Declare the config keys of 1.0.0 that are constants now: their values, and the message to a config that sets one.

A value stays in recorded configs, and so in build keys: a build of before is up to date.
"""

from typing import Any, NamedTuple


class Dropped(NamedTuple):
    """Key of before.

    Attributes:
        value: the constant, as a recorded config holds it.
        instead: the rule that holds now, for the message to a config that sets the key.
    """

    value: Any
    instead: str


_LISTENS = "models hear one channel of WAV"
_CONTROL = "controls have one strength; [judge.qualify] chooses which are asked, by 'controls'"
_FLAG = "the limits of flags are fixed, and the table has every figure: filter by its columns"
_LINKS = Dropped("refuse", "EARMARK_LINKS=follow in the environment follows links out of the sources' folders")

DROPPED: dict[str, dict[str, Dropped]] = {
    "annotation.Hearing": {
        "channels": Dropped(1, _LISTENS),
        "codec": Dropped("wav", _LISTENS),
        "longest_s": Dropped(None, "clips go whole; on_limit = 'cut' cuts those beyond the model's limits"),
    },
    "annotation.AnnotatorConfig": {
        "batch_bytes": Dropped(150 << 20, "a provider batch has 150 MiB at most"),
        "files_api_bytes": Dropped(8 << 20, "more than 8 MiB of media go to Gemini through its Files API"),
        "most_response_bytes": Dropped(8 << 20, "responses of more than 8 MiB are refused"),
        "stalled_after_s": Dropped(120.0, "after 120 s without a completion, progress says what is awaited"),
        "retry_longest_s": Dropped(60.0, "the wait between two tries is 60 s at most"),
        "connect_timeout_s": Dropped(10.0, "a connection is awaited for 10 s"),
        "again_temperature": Dropped(0.7, "where temperature is 0, a question is asked again at 0.7"),
        "quota": Dropped(None, "the processes that ask one model of one server share the caps a minute"),
    },
    "annotation.Prices": {"batch_discount": Dropped(0.5, "batches cost half, as OpenAI and Google charge")},
    "judges.Qualify": {
        "snr_db": Dropped(0.0, _CONTROL),
        "overdrive_db": Dropped(24.0, _CONTROL),
        "lowpass_hz": Dropped(1000.0, _CONTROL),
        "silent_share": Dropped(0.5, _CONTROL),
    },
    "tracks.Fitness": {"silence_dbfs": Dropped(-60.0, "clips whose peak is below -60 dBFS are silent")},
    "mos_preferences.Pairs": {"most_draws": Dropped(64, "a clip meets 64 neighbours at most when a quota is short")},
    "pseudo_preferences.PseudoPreferences": {
        "links": _LINKS,
        "prices": Dropped(None, "write money.prices in [models.NAME]"),
    },
    "pseudo_preferences.ClipLimits": {"silence_dbfs": Dropped(-60.0, "clips whose peak is below -60 dBFS are silent")},
    "pseudo_preferences.PairJudge": {"separate": Dropped(False, "one request asks all dimensions")},
    "captions.VoiceReader": {"least": Dropped(0.5, "a caption speaks of voices from a probability of 0.5")},
    "captions.Listening": {"segments": Dropped(False, "write spans = 'all'")},
    "captions.Segments": {"silent_below_dbfs": Dropped(-60.0, "tenths of a second below -60 dBFS are silent")},
    "config.Decontaminate": {
        "captions": Dropped(0.8, "texts with a Jaccard similarity of 0.8 are near-duplicates"),
        "texts_only": Dropped(False, "write audio_roots = false"),
    },
    "instrumentals.Separation": {
        "models_folder": Dropped(None, "known checkpoints are kept in the store"),
        "batch_size": Dropped(None, "a CPU takes one window at once, a GPU eight"),
        "devices": Dropped([], "all GPUs take shards, else the CPU; CUDA_VISIBLE_DEVICES chooses"),
    },
    "pseudo_preferences.Released": {"audio_root": Dropped(None, "clips' paths start from root")},
    "music_prompts.TagPool": {"instrumental": Dropped(True, "tags that ask for voices are left out")},
    "music_prompts.Verification": {
        "links": _LINKS,
        "longest_s": Dropped(30.0, "the judge hears 30 seconds"),
        "sample_rate_hz": Dropped(16_000, "the judge hears 16,000 samples a second"),
    },
    "captions.CaptionChecks": {"shortest_words": Dropped(5, "texts of fewer than 5 words count as empty")},
    "instrumentals.Result": {"bits": Dropped(16, "FLAC and WAV have 16 bits a sample")},
    "instrumentals.Instrumentals": {
        "checks": Dropped(
            {
                "most_clipped": 0.001,
                "most_emptied": 0.1,
                "least_removed_db": -40.0,
                "least_left_db": -25.0,
                "most_correlated": 0.25,
                "length_s": 0.06,
            },
            _FLAG,
        )
    },
    "human_preferences.HumanPreferences": {
        "agreement": Dropped({"draws": 1000}, "intervals come from 1,000 resamples")
    },
    "score_questions.DumpSource": {"salt_env": Dropped("EARMARK_SALT", "EARMARK_SALT salts the hashes of ids")},
    "score_questions.ThreadFilter": {
        "adult": Dropped(False, "threads for adults are left out"),
        "longest_words": Dropped(200, "threads have 200 words at most, as in the paper"),
        "least_comments": Dropped(3, "threads have 3 first-level comments at least, as in the paper"),
    },
    "score_questions.Images": {
        "links": _LINKS,
        "most": Dropped(4, "4 images of a submission are looked at"),
        "smallest_side": Dropped(64, "images with a side below 64 pixels are rejects"),
        "longest_side": Dropped(2048, "larger images are scaled down to 2,048 pixels"),
        "near_bits": Dropped(12, "images within 12 bits of a difference hash are duplicates"),
        "hosts": Dropped(
            ["i.redd.it", "preview.redd.it", "external-preview.redd.it", "i.imgur.com"],
            "images come from the hosts of Reddit and Imgur, or from 'folder'",
        ),
        "per_second": Dropped(2.0, "a host is asked twice a second"),
        "timeout_s": Dropped(30.0, "a download takes 30 seconds at most"),
        "largest_bytes": Dropped(20_000_000, "images have 20 million bytes at most"),
        "most_pixels": Dropped(50_000_000, "images have 50 million pixels at most"),
    },
    "score_questions.Questions": {
        "longest_option_words": Dropped(14, "options have 14 words at most"),
        "options": Dropped(4, "questions have 3 or 4 options"),
        "least_options": Dropped(3, "questions have 3 or 4 options"),
        "distractors": Dropped(3, "3 wrong options are written at most"),
        "tries": Dropped(3, "a text is drawn 3 times until it passes its checks"),
    },
    "score_questions.QuestionWriter": {"sees_image": Dropped(False, "the writer reads the thread alone")},
    "music_prompts.Synthesis": {
        "spare": Dropped(1.0, "as many triplets as the count are drawn in place of given-up ones"),
        "longest": Dropped(400, "prompts have 400 characters at most"),
    },
    "music_prompts.MusicPrompts": {"prices": Dropped(None, "write money.prices in [models.NAME]")},
    "instruction_rubrics.Verify": {"by_items": Dropped(False, "the judge hears the instruction as a whole")},
    "instruction_rubrics.Negatives": {
        "tries": Dropped(4, "4 instructions are tried until one does not fit"),
        "undecided": Dropped("hear", "the judge hears items that a caption does not decide"),
    },
    "instruction_rubrics.InstructionRubrics": {"translator": Dropped(None, "the writer translates")},
    "instruction_rubrics.TextModel": {"tries": Dropped(3, "an answer is drawn 3 times until it passes its checks")},
    "human_preferences.VoteSource": {"links": _LINKS},
    "rating_sources.Source": {"links": _LINKS},
    "instruction_rubrics.CaptionSource": {"links": _LINKS},
    "tracks.TrackSource": {"links": _LINKS},
}
"""Dropped keys by the model that had them, `module.Class` of `schemas/`."""


def dropped_of(model: type) -> dict[str, Dropped]:
    """Return a config model's dropped keys, its bases' included."""
    found: dict[str, Dropped] = {}
    for base in reversed(model.__mro__):
        found |= DROPPED.get(f"{base.__module__.rpartition('.')[2]}.{base.__name__}", {})
    return {name: one for name, one in found.items() if name not in getattr(model, "model_fields", {})}
