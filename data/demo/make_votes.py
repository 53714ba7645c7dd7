"""Make the demo inputs of `human-preferences`: exports of votes on the clips of `music/`, as platforms write them.

    python data/demo/make_votes.py [FOLDER]

Writes below FOLDER, by default `votes` beside this script:
    cmi_pref/first.jsonl, second.jsonl  votes by nine annotators in both spellings of CMI-Pref; seven rows are faulty
    music_arena/2025-0*.jsonl           two months of an arena, with ties and battles of which a clip is missing
    music_arena/battles/*.json          raw battles of a third month
    label_studio/export.json            what Label Studio exports of the project in deploy/label-studio
    table.csv                           a table of votes with names of its own
    musiceval/, pam/                    mean ratings in the layouts of MusicEval and PAM

The same bytes each run: everything is drawn from fixed seeds. Nobody voted: whom the annotators prefer follows from the
faults that `make_music.py` built into the models, and from chance.
"""

import csv
import io
import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from make_music import KNOWN_ORDER, MODELS, PROMPTS

RANKS: dict[str, dict[str, int]] = KNOWN_ORDER["ranks"]  # type: ignore[assignment]
CARE = (4.0, 3.0, 3.0, 2.0, 2.0, 1.5, 1.0, 0.7, 0.3)  # of the annotators: how much a rank weighs with each


class DemoPair:
    """Two generations of one prompt."""

    def __init__(self, number: int, a: str, b: str) -> None:
        self.prompt, self.number, self.models = PROMPTS[number - 1], number, (a, b)
        self.clips = tuple(f"clips/p{number:02d}-{model}-1.flac" for model in (a, b))
        self.reference = f"references/p{number:02d}.flac" if self.prompt.reference else ""


def pairs() -> list[DemoPair]:
    """Every two models' generations of every prompt; which is a changes from pair to pair."""
    held = itertools.product(range(1, len(PROMPTS) + 1), itertools.combinations(MODELS, 2))
    return [DemoPair(n, *(two if (n + place) % 2 else two[::-1])) for place, (n, two) in enumerate(held)]


def chosen(pair: DemoPair, dimension: str, care: float, random: np.random.RandomState) -> tuple[str, float]:
    """Return an annotator's choice and confidence: surer where the models lie further apart."""
    lead = care * (RANKS[dimension][pair.models[1]] - RANKS[dimension][pair.models[0]]) + random.logistic()
    return ("a" if lead > 0 else "b"), min(5.0, 1 + round(abs(lead)) / 2)


def make_votes(folder: Path) -> None:
    """Write all exports."""
    random = np.random.RandomState(10)
    held = pairs()
    first, second = list(cmi_pref(held, random, range(5))), list(cmi_pref(held, random, range(5, 9)))
    write_jsonl(folder / "cmi_pref/first.jsonl", [*first, *faulty(first)])
    write_jsonl(folder / "cmi_pref/second.jsonl", [respelt(row) for row in second])
    for month in (5, 6):
        write_jsonl(folder / f"music_arena/2025-0{month}.jsonl", arena(held, month, random))
    for place, row in enumerate(arena(held, 7, random)):
        if place < 6:
            write_json(folder / f"music_arena/battles/{row['battle_uuid']}.json", battle(row))
    write_json(folder / "label_studio/export.json", list(label_studio(held, random)))
    write_table(folder / "table.csv", held, random)
    write_ratings(folder, random)


def cmi_pref(
    held: list[DemoPair], random: np.random.RandomState, annotators: Iterable[int]
) -> Iterator[dict[str, Any]]:
    """Votes in the first spelling of CMI-Pref: each annotator hears about half of the pairs."""
    for who in annotators:
        for pair in held:
            if random.rand() < 0.5:
                continue
            said = {name: chosen(pair, name, CARE[who], random) for name in ("musicality", "alignment")}
            row = {
                "audio-path": pair.clips[0],
                "audio2": pair.clips[1],
                "prompt": pair.prompt.text,
                "lyrics": pair.prompt.lyrics or "",
                "prompt id": f"p{pair.number:02d}",
                "ref-audio-path": pair.reference,
            }
            for name, (side, sure) in said.items():
                row[f"preference-{name}"] = f"model_{side}"
                row[f"confidence_preference-{name}"] = f"{sure:.1f}"
            yield {
                **row,
                "user id": f"listener-{who}",
                "model_a": pair.models[0],
                "model_b": pair.models[1],
                "split": "",
            }


def respelt(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row in the other spelling, shown the other way round, with feedback now and then."""
    turned = {"model_a": "model_b", "model_b": "model_a"}
    names = {
        "audio-a": "audio2", "audio-b": "audio-path", "text": "prompt", "lyrics": "lyrics", "prompt id": "prompt id",
        "ref-audio": "ref-audio-path", "user_id": "user id", "model_a": "model_b", "model_b": "model_a",
    }  # fmt: skip
    out: dict[str, Any] = {new: row[old] for new, old in names.items()}
    out |= {"total_listening_time_a": 2.5, "total_listening_time_b": 2.0, "feedback": ""}
    for name in ("musicality", "alignment"):
        out[f"preference-{name}"] = turned[row[f"preference-{name}"]]
        out[f"confidence_preference-{name}"] = row[f"confidence_preference-{name}"]
    if row["prompt id"] == "p03":
        out |= {"feedback": "One clip crackles. Write to listener@mail.example.net if you need more."}
    return out


def faulty(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as exports hold them when something went wrong: each becomes a reject."""
    sound = {**rows[0], "user id": "listener-x"}
    none = {name: "" for name in sound if name.startswith(("preference", "confidence"))}
    return [
        {**sound, **none},
        {**sound, "preference-musicality": "model_c"},
        {**sound, "confidence_preference-alignment": "3.7"},
        {**sound, "audio2": sound["audio-path"]},
        {**sound, "audio2": "../../../etc/passwd"},
        {**sound, "audio-path": "clips/p01-elder-1.flac"},
        rows[0],
    ]


def arena(held: list[DemoPair], month: int, random: np.random.RandomState) -> list[dict[str, Any]]:
    """Return a month of an arena, whose audio is withheld as in its releases."""
    rows = []
    for place, number in enumerate(random.permutation(len(held))[:30]):
        pair = held[number]
        side = chosen(pair, "musicality", 1.0, random)[0]
        preference = "TIE" if place % 11 == 3 else "BOTH_BAD" if place % 13 == 5 else side.upper()
        rows.append(
            {
                "battle_uuid": f"{month:02d}{place:02d}{random.randint(1 << 30):08x}",
                "date": f"2025-0{month}-{place % 28 + 1:02d}",
                "prompt": f"{pair.prompt.text}, take {month}.{place}",
                "is_instrumental": not pair.prompt.lyrics,
                "is_prebaked": False,
                "user_pseudonym": f"visitor-{random.randint(12)}",
                "audio_a": "",
                "system_a": pair.models[0],
                "audio_b": "",
                "system_b": "" if place % 17 == 7 else pair.models[1],
                "preference": preference,
                "total_listening_time_a": round(float(random.uniform(1, 5)), 1),
                "total_listening_time_b": round(float(random.uniform(1, 5)), 1),
                "feedback": "",
                "lyrics": pair.prompt.lyrics or "",
            }
        )
    return rows


def battle(row: dict[str, Any]) -> dict[str, Any]:
    """Return the same as the running service keeps it."""
    sides = {
        f"{side}_metadata": {"system_key": {"system_tag": row[f"system_{side}"], "variant_tag": "v1"}, "lyrics": None}
        for side in ("a", "b")
    }
    return {
        "uuid": row["battle_uuid"],
        "prompt": {"prompt": row["prompt"]},
        "prompt_detailed": {"overall_prompt": row["prompt"], "instrumental": row["is_instrumental"], "lyrics": None},
        "prompt_session": {"uuid": row["user_pseudonym"]},
        "a_audio_url": "",
        "b_audio_url": "",
        **sides,
        "vote": {
            "preference": row["preference"],
            "a_listen_data": [["PLAY", 0.5], ["PAUSE", 0.5 + row["total_listening_time_a"]]],
            "b_listen_data": [["PLAY", 1.0], ["PAUSE", 1.0 + row["total_listening_time_b"]]],
            "feedback": None,
        },
        "vote_time": f"{row['date']}T12:00:00Z",
    }


def label_studio(held: list[DemoPair], random: np.random.RandomState) -> Iterator[dict[str, Any]]:
    """Tasks of Label Studio with two annotations each, one of them skipped."""
    for task, pair in enumerate(held[:6], 1):
        annotations = []
        for who in (1, 2):
            result = []
            for name in ("musicality", "alignment"):
                side, sure = chosen(pair, name, CARE[who], random)
                result.append(
                    {"from_name": name, "to_name": "prompt", "type": "choices", "value": {"choices": [side.upper()]}}
                )
                rating = {"rating": max(1, int(sure))}
                result.append(
                    {"from_name": f"confidence_{name}", "to_name": "prompt", "type": "rating", "value": rating}
                )
            skipped = task == 6 and who == 2
            annotations.append(
                {
                    "id": 10 * task + who,
                    "completed_by": who,
                    "was_cancelled": skipped,
                    "created_at": f"2025-08-{task:02d}T09:00:00.000000Z",
                    "result": [] if skipped else result,
                }
            )
        data = {
            "prompt": pair.prompt.text,
            "prompt_id": f"p{pair.number:02d}",
            **{f"audio_{side}": f"/data/local-files/?d={pair.clips[place]}" for place, side in enumerate("ab")},
            **{f"model_{side}": pair.models[place] for place, side in enumerate("ab")},
        }
        yield {"id": task, "data": data, "annotations": annotations}


def write_table(path: Path, held: list[DemoPair], random: np.random.RandomState) -> None:
    """Votes in a table with names of its own, with ties."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("first", "second", "brief", "listener", "better", "sure", "when"))
    for place, pair in enumerate(held[6:30]):
        side, sure = chosen(pair, "musicality", 1.5, random)
        better = "tie" if place % 8 == 5 else side
        rows.writerow((*pair.clips, pair.prompt.text, f"kit-{place % 3}", better, sure, f"2025-08-{place + 1:02d}"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.getvalue().encode())


def write_ratings(folder: Path, random: np.random.RandomState) -> None:
    """Mean ratings of clips that are not at hand."""
    lists: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for number, (system, prompt) in enumerate(itertools.product((1, 2, 3, 4), range(1, 13))):
        scores = ",".join(f"{value:.2f}" for value in np.clip(4.6 - 0.7 * system + random.normal(0, 0.4, 2), 1, 5))
        part = ("train", "train", "dev", "test")[number % 4]
        lists[part].append(f"audiomos2025-track1-S{system:03d}_P{prompt:03d}.wav,{scores}")
    for part, rows in lists.items():
        write_text(folder / f"musiceval/sets/{part}_mos_list.txt", rows)
    texts = [f"P{number:03d}\t{prompt.text}, played for raters" for number, prompt in enumerate(PROMPTS, 1)]
    write_text(folder / "musiceval/prompt_info.txt", ["id\ttext", *texts])
    write_text(folder / "musiceval/demo_prompt_info.txt", ["id\ttext", *(f"{text} (demo)" for text in texts)])
    rated = ["file,OVL,REL,text"]
    for system, number in itertools.product(MODELS, range(1, 7)):
        overall, fit = np.clip(5 - RANKS["musicality"][system] + random.normal(0.3, 0.4, 2), 1, 5)
        rated.append(f'human_eval/music/{system}/{number}.wav,{overall:.1f},{fit:.1f},"Rated scene {number}"')
    write_text(folder / "pam/scores.csv", [*rated, "human_eval/music/aster/7.wav,6.1,3.0,out of its scale"])


def write_text(path: Path, lines: Iterable[str]) -> None:
    """Write lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line."""
    write_text(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def write_json(path: Path, value: Any) -> None:
    """Write one JSON document."""
    write_text(path, [json.dumps(value, indent=1, ensure_ascii=False)])


if __name__ == "__main__":
    make_votes(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "votes")
