"""Pipes, devices, sockets and the kernel's own files where a file is expected: an answer at once, nothing waits."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from earmark.schemas.errors import ConfigError, EarmarkError, InputError
from earmark.schemas.files import NotAFile, open_regular, read_regular
from earmark.schemas.questions import Image
from earmark.schemas.reasons import AudioFault
from earmark.schemas.toml import read_toml
from earmark.tasks.annotation.backend import read_image
from earmark.tasks.annotation.errors import BadMedia, PromptError
from earmark.tasks.annotation.prompts import parse_prompt
from earmark.tasks.audio.index import MediaIndex
from earmark.tasks.evaluation.scores import read_table as read_scores
from earmark.tasks.importers.cells import BadRow
from earmark.tasks.importers.lines import read_lines
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.table import read_table
from earmark.tasks.importers.tracks import read_tag_map
from earmark.tasks.pipeline.inputs import file_digests
from earmark.tasks.score_questions.forum.images import _content
from earmark.tasks.score_questions.forum.lines import blocks

needs_proc = pytest.mark.skipif(not os.path.ismount("/proc"), reason="this system has no /proc")
KINDS = ("pipe", "link to a pipe", "socket", "device", "kernel", "folder")


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """Whatever waits for a pipe's writer ends as a failure, not as a test run that hangs."""
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(20)
    yield
    signal.alarm(0)


def _late(*_: object) -> None:
    raise TimeoutError("something waits for what has no end")


def thing(folder: Path, kind: str, ending: str = "") -> Path:
    """Something that is no regular file."""
    path = folder / f"odd{ending}"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "link to a pipe":
            os.mkfifo(folder / "pipe")
            path.symlink_to(folder / "pipe")
        case "socket":
            with socket.socket(socket.AF_UNIX) as made, pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)  # the name of a socket is short
                made.bind(path.name)
        case "device":
            path.symlink_to("/dev/zero")
        case "kernel":
            path.symlink_to("/proc/kmsg" if os.geteuid() == 0 else "/proc/self/maps")
        case "folder":
            path.mkdir()
    return path


@needs_proc
@pytest.mark.parametrize("kind", KINDS)
def test_only_files_are_opened(tmp_path: Path, kind: str) -> None:
    with pytest.raises(IsADirectoryError if kind == "folder" else NotAFile) as caught:
        open_regular(thing(tmp_path, kind))
    if kind != "folder":
        found = {"link to a pipe": "a named pipe", "pipe": "a named pipe", "kernel": "a file of the kernel"}
        assert caught.value.strerror == f"expected a file, found {found.get(kind, f'a {kind}')}"


def test_files_and_links_to_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    (tmp_path / "b").symlink_to("a")
    assert read_regular(tmp_path / "b") == b"x" * 3_000_000
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "c")


def test_no_handle_is_left(tmp_path: Path) -> None:
    before = sum(1 for _ in Path("/dev/fd").iterdir())
    for number, kind in enumerate(KINDS[:4]):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(NotAFile):
            open_regular(thing(tmp_path / str(number), kind))
    assert sum(1 for _ in Path("/dev/fd").iterdir()) == before


@needs_proc
@pytest.mark.parametrize("kind", KINDS)
def test_clips(tmp_path: Path, kind: str) -> None:
    (found,) = MediaIndex(tmp_path / "media.sqlite").look([thing(tmp_path, kind, ".wav")])
    assert isinstance(found, AudioFault)
    assert found.reason == "file_unreadable"
    assert "expected a" in found.detail
    assert str(tmp_path) not in found.detail


def list_file(path: Path) -> ListFile:
    return ListFile(path, "lab/odd", kind=path.suffix[1:])


READERS: dict[str, tuple[str, type[EarmarkError], Callable[[Path], object]]] = {
    "list": (".csv", InputError, lambda path: list(read_lines(path, "lab/odd"))),
    "packed list": (".csv.gz", InputError, lambda path: list(read_lines(path, "lab/odd"))),
    "table": (".parquet", InputError, lambda path: list(read_table(list_file(path), ("a", "b")))),
    "any input": ("", InputError, lambda path: file_digests([("lab/odd", path)])),
    "synonyms": (".json", InputError, lambda path: read_tag_map(path, "odd.json")),
    "config": (".toml", ConfigError, read_toml),
    "prompt": (".md", PromptError, parse_prompt),
    "score file": (".csv", InputError, read_scores),
    "image to ask about": (".png", BadMedia, lambda path: read_image(Image("0" * 64, str(path)))),
}


@needs_proc
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", READERS)
def test_everything_that_a_build_reads(tmp_path: Path, what: str, kind: str) -> None:
    ending, error, read = READERS[what]
    with pytest.raises(error) as caught:
        read(thing(tmp_path, kind, ending))
    assert len(str(caught.value).splitlines()) == 1
    assert "odd" in str(caught.value)


@pytest.mark.parametrize("kind", KINDS[:4])
def test_forum_images_and_dumps(tmp_path: Path, kind: str) -> None:
    odd = thing(tmp_path, kind, ".png")
    with pytest.raises(BadRow) as caught:
        _content(odd)
    assert caught.value.reason == "file_unreadable"
    with pytest.raises(NotAFile):
        list(blocks(odd))
