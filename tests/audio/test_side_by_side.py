"""Separation in processes of their own: the results of one process, and an end of each with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import soundfile

from earmark.schemas.errors import EarmarkError, StoreError
from earmark.tasks.audio.separation.choice import CentreRemoval
from earmark.tasks.audio.separation.jobs import FailedTrack, Output, SeparatedTrack, SeparationJob
from earmark.tasks.audio.separation.pipeline import separate
from earmark.tasks.audio.separation.side_by_side import SeparatingProcesses
from tests.audio.separating import song, write_song
from tests.conftest import ROOT

LONGEST_S = 60.0
LIGHT = "prefect", "pandas", "torch", "pyarrow", "duckdb", "pydantic"


def made_jobs(folder: Path, out: str, lengths: list[float]) -> list[SeparationJob]:
    for number, length in enumerate(lengths):
        if not (folder / f"{number}.wav").is_file():
            write_song(folder / f"{number}.wav", length, seed=number, gain=1 + number)
    return [
        SeparationJob(str(number), folder / f"{number}.wav", folder / out / f"{number}.flac")
        for number in range(len(lengths))
    ]


def wait_for_ends(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("codec", ["flac", "mp3", "wav"])
def test_processes_give_the_files_and_figures_of_one(tmp_path: Path, codec: str) -> None:
    output = Output(codec=codec, bits=16, crop_s=3.5)  # type: ignore[arg-type]
    lengths = [0.3, 4.0, 1.0, 0.01, 2.0]
    serial, spread = made_jobs(tmp_path, "serial", lengths), made_jobs(tmp_path, "spread", lengths)
    expected = {one.job.track: one for one in separate(serial, CentreRemoval(), output)}
    with SeparatingProcesses(2) as processes:
        found = {
            one.job.track: one for one in processes.separate([spread[:3], spread[3:]], CentreRemoval(), output, 60)
        }
    assert found.keys() == expected.keys()
    for track, one in found.items():
        before = expected[track]
        assert isinstance(one, SeparatedTrack)
        assert isinstance(before, SeparatedTrack)
        assert {name: getattr(one, name) for name in one.__slots__ if name != "job"} == {
            name: getattr(before, name) for name in one.__slots__ if name != "job"
        }
        assert one.job.target.read_bytes() == before.job.target.read_bytes()


def test_a_bad_file_among_good_ones_fails_alone_with_its_reason(tmp_path: Path) -> None:
    jobs = made_jobs(tmp_path, "out", [1.0] * 6)
    (tmp_path / "1.wav").write_bytes(b"no audio")
    soundfile.write(tmp_path / "3.wav", song(1.0)[0][:, 0], 44_100)
    (tmp_path / "4.wav").unlink()
    expected = {one.job.track: one for one in separate(jobs, CentreRemoval())}
    with SeparatingProcesses(2) as processes:
        found = {one.job.track: one for one in processes.separate([jobs], CentreRemoval(), Output(), LONGEST_S)}
    assert found == expected
    assert {track: one.reason for track, one in found.items() if isinstance(one, FailedTrack)} == {
        "1": "file_unreadable", "3": "separation_needs_stereo", "4": "file_missing"
    }  # fmt: skip


def test_a_fault_of_the_disk_comes_back_in_its_words(tmp_path: Path) -> None:
    (job,) = made_jobs(tmp_path, "file", [0.5])
    (tmp_path / "file").write_text("in the way")
    with SeparatingProcesses(1) as processes, pytest.raises(StoreError, match=r"^cannot write 0\.flac: "):
        list(processes.separate([[job]], CentreRemoval(), Output(), LONGEST_S))


def test_a_fault_of_the_code_comes_back_with_its_place(tmp_path: Path) -> None:
    jobs = made_jobs(tmp_path, "out", [0.5])
    with SeparatingProcesses(1) as processes:
        with pytest.raises(RuntimeError, match=r"(?s)Traceback.*in separate.*KeyError: 'aiff'"):
            list(processes.separate([jobs], CentreRemoval(), Output("aiff"), LONGEST_S))  # type: ignore[arg-type]
        assert len(list(processes.separate([jobs], CentreRemoval(), Output(), LONGEST_S))) == 1, "it serves on"


@pytest.mark.slow
def test_a_killed_process_is_told_and_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    jobs = made_jobs(tmp_path, "out", [30.0] * 4)
    others = psutil.Process().children()  # such as the Prefect server of another test
    with SeparatingProcesses(2) as processes:
        started = [one for one in psutil.Process().children() if one not in others]
        assert len(started) == 2
        results = processes.separate([[job] for job in jobs], CentreRemoval(), Output(), LONGEST_S)
        next(results)
        for one in started:
            one.kill()
        with pytest.raises(EarmarkError, match=r"a process that separates tracks ended with -9 .* earmark resume"):
            list(results)
    wait_for_ends(started)
    again = {one.job.track: one for one in separate(made_jobs(tmp_path, "calm", [30.0] * 4), CentreRemoval())}
    whole = [path for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")]
    assert whole
    assert len(whole) < len(jobs)
    assert all(path.read_bytes() == again[path.stem].job.target.read_bytes() for path in whole)


KILLED = """
import sys
from pathlib import Path
from earmark.tasks.audio.separation.choice import CentreRemoval
from earmark.tasks.audio.separation.jobs import Output, SeparationJob
from earmark.tasks.audio.separation.side_by_side import SeparatingProcesses

folder = Path(sys.argv[1])
jobs = [[SeparationJob(str(n), folder / "0.wav", folder / f"out/{n}.flac")] for n in range(10_000)]
with SeparatingProcesses(2) as processes:
    for done in processes.separate(jobs, CentreRemoval(), Output(), 60.0):
        print(done.job.track, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    made_jobs(tmp_path, "out", [5.0])
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().strip().isdigit()
        started = psutil.Process(parent.pid).children()
        assert len(started) == 2
        os.kill(parent.pid, number)
        _, said = parent.communicate(timeout=120)
        assert parent.returncode == -number
        assert said.count("Traceback") == (number == signal.SIGINT), "the parent's own alone"
    wait_for_ends(started)
    parts = [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]
    assert number == signal.SIGKILL or not parts
    count = len(list((tmp_path / "out").iterdir()))
    time.sleep(0.2)
    assert len(list((tmp_path / "out").iterdir())) == count, "nobody writes any more"


def test_a_process_imports_what_it_needs() -> None:
    asked = "import sys, earmark.tasks.audio.separation.side_by_side, earmark.tasks.audio.separation.choice"
    found = subprocess.run(
        [sys.executable, "-P", "-c", f"{asked}; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "earmark.tasks.audio.separation.side_by_side" in found
    assert not {name.partition(".")[0] for name in found} & {*LIGHT}
