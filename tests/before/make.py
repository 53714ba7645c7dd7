"""Make `demo.tar.zst` and `builds.tar.zst` again, from a checkout of the release that they hold:

    git worktree add ../release f47ef3e && make -C ../release setup
    ../release/.venv/bin/python -m pip install -c constraints.txt torch==2.13.0 transformers
    python -m tests.before.make ../release

Do so where rows are meant to change, from the last release before that change, and say so in the commit; or where a new
pinned library writes other bytes, from the same release with the new pin. It needs LAME, and two minutes.

The demo is built on the ledger that the archive holds now, which so keeps what earlier states asked; versions of before
the release are taken over as they are. Left out are the sounds and pictures in reports, which are most of a version's
bytes; in the demo's ledger, times and machines; in Prefect's database, its events and logs.

`transformers:` is a tiny model with random weights, asked for real. `vllm:` is the release's own code over an engine of
`STAND_IN`, which has the shape of vLLM's and no weights: keys and the form of answers are real, the words are not.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import zstandard

from tests.before import asks, builds
from tests.before.fixture import (
    ARCHIVE,
    BUILDS,
    CHECKOUT,
    DEMO,
    FOLDER,
    HOST,
    LEDGER,
    MEDIA,
    OLDER,
    PREFECT,
    ROOT,
    SALT,
    SOUNDS,
    dictionary,
    install,
    older,
    seed,
)  # fmt: skip

COMMAND = """
import sys
from earmark.tasks.build import report
from earmark.tasks.store import figures
report.read_sounds = lambda stage, clips: {}
figures.Picture.address = "data:,"
from earmark.flows.command.cli import app
app(sys.argv[1:])
"""
STAND_IN = '''
"""An engine of the shape of vLLM's, without weights: it says what fits the form that is asked for."""
import hashlib, json
from types import SimpleNamespace
WORDS = {"Yes": 11, "No": 12, **{str(digit): 20 + digit for digit in range(10)}}
class SamplingParams:
    def __init__(self, **options):
        self.__dict__.update({"structured_outputs": None, "logprob_token_ids": None}, **options)
class Tokenizer:
    def encode(self, word, add_special_tokens=True):
        return [WORDS[word]]
    def decode(self, ids):
        return {number: word for word, number in WORDS.items()}[ids[0]]
class LLM:
    def __init__(self, model, **options):
        self.model = model
    def get_tokenizer(self):
        return Tokenizer()
    def chat(self, messages, params, use_tqdm=True):
        return [self.say(*one) for one in zip(messages, params, strict=True)]
    def say(self, messages, params):
        drawn = hashlib.sha256(json.dumps([messages, params.__dict__], sort_keys=True, default=vars).encode()).digest()
        text, logprobs, wanted = f"A tune of {drawn[0]} notes for {drawn[1]} strings.", None, params.structured_outputs
        if params.logprob_token_ids:
            ids = params.logprob_token_ids
            logprobs = [{one: SimpleNamespace(logprob=-0.5 - drawn[n] / 64) for n, one in enumerate(ids)}]
            text = Tokenizer().decode([ids[0]])
        elif wanted is not None and getattr(wanted, "choice", None):
            text = wanted.choice[drawn[0] % len(wanted.choice)]
        elif wanted is not None:
            text = json.dumps({"choice": "AB"[drawn[0] % 2]})
        said = SimpleNamespace(text=text, token_ids=[1] * len(text.split()), finish_reason="stop", logprobs=logprobs)
        return SimpleNamespace(outputs=[said], prompt_token_ids=[1, 2, 3])
'''
STAND_IN_PARAMS = """
class StructuredOutputsParams:
    def __init__(self, **options):
        self.__dict__.update(options)
"""
UNTIMED = """
DELETE FROM runs;
CREATE TEMP TABLE places AS SELECT id, row_number() OVER (ORDER BY key) AS place FROM requests;
CREATE UNIQUE INDEX temp.by_id ON places (id);
CREATE TEMP TABLE tries AS SELECT a.id, p.place, row_number() OVER (ORDER BY p.place, number) AS nth
  FROM attempts a JOIN places p ON p.id = a.request_id;
CREATE UNIQUE INDEX temp.by_try ON tries (id);
UPDATE attempts SET request_id = -(SELECT place FROM tries t WHERE t.id = attempts.id),
  id = -(SELECT nth FROM tries t WHERE t.id = attempts.id), started_at = 0, latency_s = 0;
UPDATE attempts SET request_id = -request_id, id = -id;
UPDATE requests SET id = -(SELECT place FROM places p WHERE p.id = requests.id), created_at = 0, settled_at = 0,
  owner = NULL;
UPDATE requests SET id = -id;
"""
SOUND = {".flac", ".mp3", ".ogg", ".wav"}
SECRET = hashlib.sha256(b"the demo's people are invented").hexdigest()  # of the salt; keeps nobody secret
KEPT = ("media.sqlite", "runs", "measured-detectors", LEDGER, SALT)  # of the demo's store, beside versions
STORES = (  # which builds are made: folder, corpus, config
    ("models", "captions", "captions"),
    ("takes", "studio-takes", "studio-takes"),
    ("takes", "mos-preferences", "mos-preferences"),
    ("sound", "captions", "captions"),
    ("sound", "mos-preferences", "mos-preferences"),
    ("ratings", "mos-preferences", "age"),
    ("ratings", "mos-preferences", "contested"),
)


class Bench:
    """The release in a checkout, and a folder where it works."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.checkout, self.folder = checkout.absolute(), folder
        self.site = folder / "site"
        install(self.site)
        (self.site / "vllm").mkdir()
        (self.site / "vllm/__init__.py").write_text(STAND_IN)
        (self.site / "vllm/sampling_params.py").write_text(STAND_IN_PARAMS)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "EARMARK_"))}
        self.environment = kept | {
            "PYTHONPATH": str(self.site),
            "PREFECT_HOME": str(folder / PREFECT),
            "EARMARK_KEEP_S": "0",
            "EARMARK_CACHE": str(folder / "cache"),
        }

    def start(self, words: Sequence[object], folder: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Begin a process of the release's environment."""
        python = self.checkout / ".venv" / "bin" / "python"
        return subprocess.Popen(
            [str(python), *map(str, words)],
            cwd=folder, stdin=subprocess.DEVNULL, env=self.environment | environment,
        )  # fmt: skip

    def run(self, words: Sequence[object], folder: Path, **environment: str) -> None:
        """Run a process of the release's environment to its end."""
        if status := self.start(words, folder, **environment).wait():
            raise RuntimeError(f"{words[:3]}: exit status {status}")


@contextmanager
def serving(latency_s: float = 0.0) -> Iterator[list[Mapping[str, Any]]]:
    """The models' server of `builds.py`; what it has answered."""
    answered: list[Mapping[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            time.sleep(latency_s * (1 + len(answered) % 3))
            text, why = builds.answer(body)
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": why}
            usage = {"prompt_tokens": 100, "completion_tokens": len(text.split())}
            said = json.dumps({"id": "c", "model": body["model"], "choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
            answered.append(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", builds.PORT), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield answered
    finally:
        server.shutdown()
        server.server_close()


def build_demo(bench: Bench) -> Path:
    """Build every demo corpus, on the ledger that the archive holds now."""
    store = bench.folder / DEMO
    seed(store)
    bench.run(["-c", COMMAND, "demo", "--store", store], bench.checkout)
    with closing(sqlite3.connect(store / LEDGER)) as ledger:
        ledger.executescript(UNTIMED)
        ledger.execute("VACUUM")
    return store


def build_others(bench: Bench) -> None:
    """Make the builds of `builds.py`."""
    for name, write in builds.WRITE.items():
        write(bench.folder / name)
        (bench.folder / name / "store").mkdir()
        (bench.folder / name / "store" / SALT).write_text(SECRET + "\n", "utf-8")
    make_model = f"from tests.annotation.tiny_model import *; make_tiny_model(Path({str(bench.folder / asks.TINY)!r}))"
    bench.run(["-c", make_model], bench.checkout)
    for name in ("models", "asks"):
        (bench.folder / name / asks.TINY).symlink_to(bench.folder / asks.TINY)
    bench.run([asks.__file__, "."], bench.folder / "asks")
    (bench.folder / "asks" / LEDGER).rename(bench.folder / "asks" / "store" / LEDGER)
    with serving():
        for folder, corpus, config in STORES:
            words = ["-c", COMMAND, "build", corpus, "--config", f"{config}.toml", "--store", "store"]
            bench.run(words, bench.folder / folder)
    kill_one(bench)


def kill_one(bench: Bench) -> None:
    """Kill a build while its model is asked."""
    folder = bench.folder / "killed"
    with serving(latency_s=0.3) as answered:
        words = ["-c", COMMAND, "build", "captions", "--config", "captions.toml", "--store", "store"]
        running = bench.start(words, folder)
        while len(answered) < builds.KILLED_AFTER:
            if running.poll() is not None:
                raise RuntimeError("the build ended before it was killed")
            time.sleep(0.02)
        running.send_signal(signal.SIGKILL)
        running.wait()
    time.sleep(20)  # until Prefect's server sees that nobody needs it


def name_places(store: Path, places: Mapping[str, str]) -> None:
    """Have records of runs and the media index name places by what the archives call them."""
    for record in (store / "runs").glob("*.json"):
        text = record.read_text("utf-8")
        for place, name in places.items():
            text = text.replace(place, name)
        record.write_text(text, "utf-8")
    if (store / MEDIA).is_file():
        with closing(sqlite3.connect(store / MEDIA)) as index:
            for place, name in places.items():
                index.execute("UPDATE media SET path = replace(path, ?, ?)", (place, name))
            index.commit()


def trim_prefect(home: Path, places: Mapping[str, str]) -> None:
    """Leave of a Prefect home its database, without events and logs, and with other names for places."""
    for path in home.iterdir():
        if path.name != "prefect.db":
            path.unlink()
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        for table in ("event_resources", "events", "log"):
            database.execute(f"DELETE FROM {table}")
        for place, name in places.items():
            database.execute("UPDATE flow_run SET parameters = replace(parameters, ?, ?)", (place, name))
        database.commit()
        database.execute("PRAGMA journal_mode = delete")
        database.execute("VACUUM")


def packed(files: Mapping[str, Path]) -> bytes:
    """Files by their names in a tar archive, without owners and times."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, path in files.items():
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            archive.addfile(member, io.BytesIO(path.read_bytes()))
    return content.getvalue()


def files_below(folder: Path, name: str = "") -> dict[str, Path]:
    """Files below a folder by what they are called in the archive; no locks, nothing of SQLite's that is rebuilt."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith((".lock", "-shm"))]
    return {f"{name}{path.relative_to(folder).as_posix()}": path for path in found if asks.TINY not in path.parts}


def main(checkout: Path) -> None:
    """Have the release build everything, then pack it."""
    with tempfile.TemporaryDirectory(prefix="earmark-") as place:
        bench = Bench(checkout, Path(place).resolve())
        build_demo(bench)
        build_others(bench)
        pack(bench)


def pack(bench: Bench) -> None:
    """Write the archives and the list of sounds that the demo's refers to."""
    folder, demo = bench.folder, bench.folder / DEMO
    held = {f"{OLDER}/{name}": path for name, path in files_below(older(folder / OLDER).root).items()}
    places = {
        str(bench.checkout): CHECKOUT,
        str(folder): FOLDER,
        f'"host": "{socket.gethostname()}"': f'"host": "{HOST}"',
    }
    for store in (demo, *folder.glob("*/store")):
        name_places(store, places)
    trim_prefect(folder / PREFECT, places)
    for name in (*KEPT, *(path.relative_to(demo).as_posix() for path in demo.glob("*/v1"))):
        path = demo / name
        held |= files_below(path, f"{DEMO}/{name}/") if path.is_dir() else {f"{DEMO}/{name}": path}
    content = packed(dict(sorted(held.items())))
    others = {f"{name}/{one}": path for name in builds.WRITE for one, path in files_below(folder / name).items()}
    rest = packed(others | files_below(folder / PREFECT, f"{PREFECT}/"))
    sounds = [path for path in sorted((ROOT / "data" / "demo").rglob("*")) if path.suffix in SOUND]
    names = {path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in sounds}
    SOUNDS.write_text(json.dumps(names, indent=1) + "\n", "utf-8")
    level = zstandard.ZstdCompressionParameters.from_level(19, window_log=25, enable_ldm=True)
    for path, made, words in ((ARCHIVE, content, dictionary(sounds)), (BUILDS, rest, None)):
        path.write_bytes(zstandard.ZstdCompressor(compression_params=level, dict_data=words).compress(made))
        print(f"{path.name}: {len(made):,} bytes in {path.stat().st_size:,}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
