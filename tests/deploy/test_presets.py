"""The presets in `deploy/configs` ask for what the papers' tables say, from the sources that these name."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.captions import Captions
from earmark.schemas.config import BuildConfig
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.captions.asking import cut
from earmark.tasks.pipeline.registry import find_corpus
from tests.annotation.conftest import LocalServer
from tests.captions.captions import build_captions
from tests.conftest import ROOT
from tests.instruction_rubrics.films import answer, films_config, write_films
from tests.pseudo_preferences.music import write_clip
from tests.servers.faults import Faults

PRESETS = ROOT / "deploy/configs"


@dataclass(frozen=True)
class Facts:
    """What a paper says of a data set.

    Attributes:
        where: paper and section, table or release.
        totals: rows by their unit, as a dry run counts them.
        targets: rows by what they are; those that are not listed are not compared.
        sources: name of a source, and its layout where it has one of its own.
        options: dotted keys of the config, and their values.
    """

    where: str
    totals: Mapping[str, int] = field(default_factory=dict)
    targets: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


TABLE_1 = {  # MOS-RMBench, Table 1: pairs of train, validation and test; VMC'23 is tested on alone
    "bvcc": (9_948, 2_132, 1_000),
    "nisqa": (11_571, 2_796, 2_240),
    "singmos": (10_000, 2_720, 1_000),
    "somos": (13_814, 2_257, 1_000),
    "tmhint-qi": (10_000, 0, 1_000),
}
BENCH = {  # AnyAudio-Judge, the released bench's README: samples a language
    "speech-real": 1_200,
    "speech-gen": 2_000,
    "sound-real": 1_000,
    "sound-gen": 1_200,
    "music-real": 720,
    "music-gen": 800,
    "mix": 1_000,
}
JAMENDO = "../../corpora/mtg-jamendo/raw_30s_cleantags.tsv"
FACTS = {
    "mos-preferences": Facts(
        "MOS-RMBench, Table 1 (pairs) and section on preference cycles (565 triplets, 65 of SOMOS)",
        {"pairs": 55_333 + 9_905 + 9_240, "triplets": 565},
        {
            **{f"{split} {name}, pairs": count for name, row in TABLE_1.items()
               for split, count in zip(("train", "validation", "test"), row, strict=True)},
            "ood vmc23, pairs": 3_000,
            "somos, triplets": 65,
            **{f"{name}, triplets": 100 for name in ("bvcc", "nisqa", "singmos", "tmhint-qi", "vmc23")},
        },
        {name: name for name in (*TABLE_1, "vmc23")},
    ),
    "pseudo-preferences": Facts(
        "CMI-RewardBench, CMI-Pref-Pseudo: 129,545 pairs; its settings in per cent",
        {"pairs": 129_545},
        options={
            "pairs.modalities": {"text": 44.8, "text+lyrics": 19.8, "text+audio": 17.0, "text+lyrics+audio": 18.3},
            "judge.require": ["musicality", "alignment"],
            "pairs.same_model": False,
        },
    ),
    "human-preferences": Facts(
        "CMI-RewardBench, CMI-Pref: a balanced test split of 500; the benchmark's sets",
        {"comparisons drawn": 500},
        sources={"cmi-pref": "cmi-pref", "music-arena": "music-arena", "musiceval": "musiceval", "pam": "pam"},
    ),
    "music-prompts": Facts(
        "ATTM, evaluation prompts: 80 in distribution (40 strict, 40 improvised), 20 out of it; the pool's filters",
        {"prompts": 100},
        {"strict_id, prompts": 40, "improvised_id, prompts": 40, "strict_ood, prompts": 20},
        options={"tracks": JAMENDO, "pool.popularity": 100, "pool.mentions": 10, "pool.recall": 0.85}
        | {"verification.annotator": "openai:Qwen/Qwen3-Omni-30B-A3B-Instruct", "synthesis.shots": 5},
    ),
    "instrumentals": Facts(
        "ATTM, training data: MTG-Jamendo raw_30s, 55,701 tracks, without their voice",
        options={"source.tracks": JAMENDO, "source.format": "mtg-jamendo", "limit": None},
    ),
    "captions": Facts(
        "ATTM, captions: Qwen2-Audio directly; Music Flamingo refined by Qwen3, of the same tracks",
        options={"source.tracks": JAMENDO, "instrumentals": "instrumentals", "limit": None},
    ),
    "captions-films": Facts(
        "AnyAudio-Judge, bench construction: one-minute segments of films, captioned as a whole",
        options={"segments.least_s": 45.0, "segments.most_s": 75.0, "source.format": "table", "limit": None},
    ),
    "score-questions": Facts(
        "WildScore, data collection: r/musictheory 2012 to 2022, at most 200 words, at least 3 first-level comments",
        options={
            "source.subreddits": ["musictheory"],
            "source.years": [2012, 2022],
            "filter.longest_words": 200,
            "filter.least_comments": 3,
        },
    ),
    "instruction-rubrics-bench": Facts(
        "AnyAudio-Judge, bench construction and the release's README: 7,920 a language, 1:1",
        {"samples a language": 7_920},
        {f"test {subset}, samples a language": count for subset, count in BENCH.items()},
        {
            "instruct-tts-eval-en": "instruct-tts",
            "instruct-tts-eval-zh": "instruct-tts",
            "clotho-evaluation": "clotho",
            "song-describer": "song-describer",
            **dict.fromkeys(("generated-speech", "generated-sounds", "generated-music", "films"), "table"),
        },
    ),
    "instruction-rubrics-corpus": Facts(
        "AnyAudio-Judge, corpus construction: 105K of captioned real audio, from other sources than the bench's",
        {"samples": 105_000},
        {
            **{f"train {subset}-real, samples": 30_000 for subset in ("speech", "sound", "music")},
            "train mix, samples": 15_000,
        },
        {
            **dict.fromkeys(("described-speech", "described-speech-zh", "films"), "table"),
            "audiocaps": "audiocaps",
            "musicbench": "musicbench",
        },
    ),
}  # fmt: skip


def read(name: str) -> BuildConfig:
    path = PRESETS / f"{name}.toml"
    values = read_toml(path)
    return parse_config(find_corpus(values["corpus"]).config, values, path)


def test_every_preset_of_these_corpora_is_in_the_table() -> None:
    corpora = {read(name).corpus for name in FACTS}
    assert {path.stem for path in PRESETS.glob("*.toml") if read(path.stem).corpus in corpora} == set(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_a_preset_has_the_papers_numbers_and_sources(name: str) -> None:
    facts, config = FACTS[name], read(name)
    targets = config.targets()
    totals: Counter[str] = Counter()
    for what, count in targets.items():
        totals[what.rpartition(", ")[2]] += count
    assert +totals == facts.totals, facts.where
    assert {what: targets[what] for what in facts.targets} == facts.targets, facts.where
    recorded = config.recorded()
    assert {one["name"]: one["format"] for one in recorded.get("sources", ())} == facts.sources, facts.where
    for key, value in facts.options.items():
        at: Any = recorded
        for part in key.split("."):
            at = at[part]
        assert at == value, f"{key}: {facts.where}"


def test_both_caption_pipelines_hear_the_first_half_minute_once() -> None:
    config = read("captions")
    assert isinstance(config, Captions)
    assert [cut(200.0, pipeline.listen) for pipeline in config.pipelines] == [[[(0.0, 30.0)]]] * 2


def test_bench_and_corpus_share_no_source() -> None:
    bench, corpus = (read(f"instruction-rubrics-{part}").recorded() for part in ("bench", "corpus"))
    assert {one["set"] for one in bench["sources"]} == {"test"}
    assert {one["set"] for one in corpus["sources"]} == {"train"}
    assert not any(one["generated"] for one in corpus["sources"]), "captioned real audio"
    for key in ("captions", "audio_root"):
        assert not {one[key] for one in bench["sources"]} & {one[key] for one in corpus["sources"]} - {None}
    shared = {one["name"] for one in bench["sources"]} & {one["name"] for one in corpus["sources"]}
    assert shared == {"films"}, "one version of captions, whose films are in one split each"
    assert {one["split"] for part in (bench, corpus) for one in part["sources"] if one["version"]} == {"test", "train"}
    shared = {one["format"] for one in bench["sources"]} & {one["format"] for one in corpus["sources"]}
    assert shared == {"table"}, "a published set is on one side alone"


ROWS = {  # a line of each layout; `{0}` is the file of a clip that is there
    "instruct-tts": '{{"id": "{0}", "APS": "A low voice.", "DSD": "A man speaks.", "RP": "A teller of tales."}}\n',
    "clotho": "file_name,caption_1,caption_2,caption_3,caption_4,caption_5\n{0}.wav,rain,drops,a roof,water,wet\n",
    "song-describer": "caption_id,track_id,caption,artist_id,path\n1,1,A slow song.,1,{0}.wav\n",
    "table": '{{"id": "1", "audio": "{0}.wav", "text": "What is heard in {0}."}}\n',
    "audiocaps": "audiocap_id,youtube_id,start_time,caption\n1,{0},0,A dog barks.\n",
    "musicbench": '{{"location": "{0}.wav", "main_caption": "A slow song."}}\n',
}


@pytest.mark.slow
@pytest.mark.parametrize("part", ["bench", "corpus"])
def test_the_dry_run_prints_the_papers_numbers(part: str, tmp_path: Path) -> None:
    """The preset as it is shipped, over a clip or two a source."""
    preset = PRESETS / f"instruction-rubrics-{part}.toml"
    (tmp_path / "deploy/configs").mkdir(parents=True)
    copy = tmp_path / "deploy/configs/preset.toml"
    copy.write_text(preset.read_text("utf-8"), "utf-8")
    write_films(tmp_path)
    split = "test" if part == "bench" else "train"
    with LocalServer(Faults()) as server:
        server.answer = answer
        build_captions(films_config(tmp_path, server.base_url, shares={split: 1.0}), tmp_path / "store")
    for number, source in enumerate(tomllib.loads(copy.read_text("utf-8"))["sources"]):
        if "version" in source:
            continue
        layout = source.get("format", "table")
        path = (copy.parent / source["captions"]).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        text = ROWS[layout].format(f"clip{number}")
        if source.get("language") == "zh":
            text = re.sub(r'(?<=: ")[A-Z][^"]*\.(?=")', "有人在低声说话。", text)
        path.write_text(text, "utf-8")
        folder = (copy.parent / source["audio_root"]).resolve() if "audio_root" in source else path.parent
        folder.mkdir(parents=True, exist_ok=True)
        name = f"clip{number}_0.wav" if layout == "audiocaps" else f"clip{number}.wav"
        write_clip(folder / name, number, seconds=0.6)
    command = ["build", "instruction-rubrics", "--config", str(copy), "--dry-run", "--store", str(tmp_path / "store")]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0, ended.output
    facts = FACTS[f"instruction-rubrics-{part}"]
    ((unit, total),) = facts.totals.items()
    shown = dict(line.rsplit(maxsplit=1) for line in ended.stdout.splitlines() if f", {unit} " in line)
    assert {what.strip(): count for what, count in shown.items()} == {
        what: f"{count:,}" for what, count in facts.targets.items()
    }
    assert f"{total:,}" in ended.stdout
