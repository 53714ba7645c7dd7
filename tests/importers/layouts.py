"""Small made-up corpora in every published layout; each function writes one and returns how many rows rate a clip.

Systems, speakers and contents cross, so that pairs of every category can be drawn from each of them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SYSTEMS, SPEAKERS, CONTENTS, LISTENERS = 4, 2, 5, 3
NISQA_HEADER = (
    "db,con,file,con_description,filename_deg,filename_ref,source,lang,votes,mos,noi,col,dis,loud,"
    "noi_std,col_std,dis_std,loud_std,mos_std,filepath_deg,filepath_ref"
)
TMHINT_HEADER = "idx,method,uttr,snr,noise,quality_score,intelligibility_score,file_name"


def score(*parts: int) -> float:
    """A score from 1 to 5 in steps of an eighth, different for most clips."""
    return 1 + int(sum(17**place * part for place, part in enumerate(parts, 1)) % 33) / 8


def rating(*parts: int) -> int:
    """One listener's rating, from 1 to 5."""
    return 1 + int(sum(7**place * part for place, part in enumerate(parts, 1)) % 5)


def grid() -> Iterator[tuple[int, int, int]]:
    """Every system, speaker and content."""
    for system in range(SYSTEMS):
        for speaker in range(SPEAKERS):
            for content in range(CONTENTS):
                yield system, speaker, content


def write(path: Path, lines: Iterable[str], end: str = "\n") -> int:
    """Write lines, making the folders; returns how many there were."""
    path.parent.mkdir(parents=True, exist_ok=True)
    held = list(lines)
    path.write_bytes("".join(line + end for line in held).encode())
    return len(held)


def bvcc(root: Path, folder: str = "main/DATA/sets", ratings: bool = False) -> int:
    """BVCC with means, or with the ratings sets beside them; its texts lie in the root."""
    sets = {"train": "TRAINSET", "val": "DEVSET", "test": "TESTSET"}
    rows = 0
    texts = ["wav_name,transcription,track,cluster,reference"]
    for offset, (split, rating_set) in enumerate(sets.items()):
        clips = [(f"sys{s:05x}", f"sys{s:05x}-utt{offset}{p}{c:05x}.wav", (s, p, c)) for s, p, c in grid()]
        rows += write(root / folder / f"{split}_mos_list.txt", (f"{wav},{score(*at)}" for _, wav, at in clips))
        if ratings:
            rows += write(
                root / folder / rating_set,
                (
                    f"{system},{wav},{rating(*at, judge)},x{judge}_1,{{}}_30-39_judge{judge}_Female_Valid_1_No"
                    for system, wav, at in clips
                    for judge in range(LISTENERS)
                ),
            )
            rows -= len(clips)
        texts += [f"{wav},t,main,{at[2] if at[2] else -1},t" for _, wav, at in clips]
    write(root / "transcriptions_clustered.csv", texts)
    return rows


def nisqa(root: Path, single: bool = True) -> int:
    """NISQA, as the file of all databases or as one file per database."""
    rows: dict[str, list[str]] = {}
    for db in ("NISQA_TRAIN_SIM", "NISQA_VAL_LIVE", "NISQA_TEST_P501"):
        for s, p, c in grid():
            name = f"c{s:05d}_{p}_{c}.wav"
            rows.setdefault(db, []).append(
                f"{db},{s}.0,{c},d,{name},ref_{p}_{c}.wav,src,en,{5 + s},{score(s, p, c)},,,,,,,,,0.{c}5,"
                f"{db}/deg/{name},{db}/ref/ref_{p}_{c}.wav"
            )
    if single:
        write(
            root / "NISQA_Corpus/NISQA_corpus_file.csv", [NISQA_HEADER, *(line for db in rows.values() for line in db)]
        )
    else:
        for db, lines in rows.items():
            write(root / db / f"{db}_file.csv", [NISQA_HEADER, *lines])
    return sum(map(len, rows.values()))


def singmos(root: Path, layout: str = "voicemos2024") -> int:
    """SingMOS in one of its layouts: `voicemos2024`, `v1` or `json`."""
    splits = {"train": 0, "val": 1, "eval": 2}
    clips = {
        split: [(f"sys{s:04d}", f"sys{s:04d}-utt{k}{p}{c}", score(s, p, c, k)) for s, p, c in grid()]
        for split, k in splits.items()
    }
    if layout == "json":
        entries = {
            name: {
                "sys_id": system,
                "wav": f"wav/{name}.wav",
                "score": {"mos": mos, "scores": [mos, mos], "judges": ["a", "b"]},
            }
            for held in clips.values()
            for system, name, mos in held
        }
        lists = {"made-up": {split: [name for _, name, _ in held] for split, held in clips.items()}}
        write(root / "info/score.json", [json.dumps({"system": {}, "utterance": entries}, indent=1)])
        write(root / "info/split.json", [json.dumps(lists)])
        return len(entries)
    folder, prefix, ending = ("DATA/sets", "voicemos2024-track2-", "_mos_list.txt")
    if layout == "v1":
        folder, prefix, ending = ("sets", "", ".txt")
    return sum(
        write(root / folder / f"{split}{ending}", (f"{prefix}{name},{mos:.6f}" for _, name, mos in held))
        for split, held in clips.items()
    )


def somos(root: Path, ratings: bool = True) -> int:
    """SOMOS, its clean subset, with ratings or with means alone; system 000 is natural speech."""
    sets = {"train": "TRAINSET", "valid": "VALIDSET", "test": "TESTSET"}
    folder = root / "training_files/split1/clean"
    rows = 0
    for offset, (split, rating_set) in enumerate(sets.items()):
        clips = [(s, f"novel-{offset}_2007_{p}{c:04d}_{s:03d}", (s, p, c)) for s, p, c in grid()]
        means = write(
            folder / f"{split}_mos_list.txt", ["utteranceId,mean", *(f"{n}.wav,{score(*at)}" for _, n, at in clips)]
        )
        rated = [
            f"{s:03d},{name}.wav,{rating(*at, judge)},JUDGE{judge}"
            for s, name, at in clips
            for judge in range(LISTENERS)
        ]
        if ratings:
            write(folder / rating_set, ["systemId,utteranceId,choice,listenerId", *rated])
        rows += len(rated) if ratings else means - 1
    return rows


def tmhint_qi(root: Path, audio: bool = False) -> int:
    """TMHINT-QI, all rows with a rating; with `audio`, empty files in the folders of its two splits."""
    lines = [TMHINT_HEADER]
    for s, p, c in grid():
        name = f"METHOD{s}_snr-{s}_white_TMHINT_b{p}_21_{c:02d}"
        lines += [f"{judge},METHOD{s},{c},-{s},white,{rating(s, p, c, judge)},9.5,{name}" for judge in range(LISTENERS)]
        if audio:
            write(root / ("test" if c == 0 else "train") / f"{name}.wav", [])
    return write(root / "raw_data.csv", lines) - 1


def vmc23(root: Path) -> int:
    """VoiceMOS 2023, its three tracks, with one clean reference in the third that does not count."""
    first = (f"VoiceMOS2023Track1-S{s}-AD_test_{p}{c:03d},{score(s, p, c)}" for s, p, c in grid())
    second = (f"VoiceMOS2023Track2-B{s:02d}-SF{p}-CDF1-3{c:04d},{score(s, p, c, 1)}" for s, p, c in grid())
    third = (f"VoiceMOS2023Track3-M{s}_snr-2_babble_TMHINT_b{p}_21_{c:02d},{score(s, p, c, 2)}" for s, p, c in grid())
    rows = write(root / "track1_answer.txt", first) + write(root / "track2_answer.txt", second)
    return rows + write(root / "track3_answer.txt", [*third, "VoiceMOS2023Track3-TMHINT_b1_21_01,5.0"]) - 1


def table(path: Path) -> int:
    """A table in the format that the path's ending names, with the columns `TABLE_COLUMNS`."""
    rows = [
        {
            "wav_path": f"clips/{s}/{p}-{c}.wav",
            "score": score(s, p, c),
            "system_id": f"sys{s}",
            "speaker_id": f"spk{p}",
            "text": f"t{c}",
            "votes": 4 + s,
        }
        for s, p, c in grid()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        write(path, (json.dumps(row) for row in rows))
    else:
        _write_delimited(path, list(rows[0]), [list(row.values()) for row in rows])
    return len(rows)


TABLE_COLUMNS = {
    "file": "wav_path",
    "mos": "score",
    "system": "system_id",
    "speaker": "speaker_id",
    "content": "text",
    "votes": "votes",
}


def _write_delimited(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(header)
        writer.writerows(rows)
