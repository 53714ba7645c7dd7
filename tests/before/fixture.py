"""What release 1.0.0 left: its demo, and builds of its own, as it wrote them (`make.py`).

Two archives, made for tests to unpack; each has a doorway:

    unpack(folder)              the demo's store: ledger, salt, media index, records of runs, a version of each corpus
    seed(folder)                its ledger and salt alone, so that all that was asked is answered
    older(folder)               versions from before the release, when corpora asked models by many mechanisms
    release(folder)             the builds that `builds.py` lists, each with inputs, configs and store, and the Prefect
                                home that all of them and the demo had:

        made = release(tmp_path, "sound")       # or all, without names
        made.config("sound", "captions"), made.store("sound"), made.ledger("sound"), made.media("sound"), made.prefect

Paths, hosts and times of change in records and media indexes are set to where the files lie now, so that a build over
them finds its clips measured and `earmark resume` finds its config. Models' servers of then are gone: a request that
the ledger does not answer fails. Versions hold the sounds of `data/demo`, so these serve as the demo archive's
dictionary; `sounds.json` names them.
"""

from __future__ import annotations

import hashlib
import io
import json
import socket
import sqlite3
import tarfile
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import zstandard

from earmark.tasks.store.staging import STAGING
from earmark.tasks.store.versions import Store, Version

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = Path(__file__).with_name("demo.tar.zst")
BUILDS = Path(__file__).with_name("builds.tar.zst")
SOUNDS = Path(__file__).with_name("sounds.json")
PLUGIN = Path(__file__).with_name("lab_takes")
LEDGER, SALT, MEDIA = "ledger.sqlite", "salt", "media.sqlite"
CORPORA = (
    *("captions", "human-preferences", "instruction-rubrics", "instrumentals", "mos-preferences", "music-prompts"),
    *("pseudo-preferences", "score-questions"),
)
"""Those of the release."""
DEMO, OLDER, PREFECT = "demo", "older", "prefect"  # at the top of the archives, beside the builds
CHECKOUT, FOLDER, HOST = "/release", "/builds", "builder"  # what the archives call the places where they were made
PAID = {  # the ledger's tables that grow by every exchange, and what tells their rows apart
    "requests": "key, model, state, answer, reason, created_at",
    "attempts": "(SELECT key FROM requests WHERE requests.id = request_id), number, status, started_at",
    "batches": "id, state",
}
ADDS = {  # the plug-in's entry points
    "corpora": {"studio-takes": "lab_takes.corpus:CORPUS"},
    "importers": {"ratings.panel-json": "lab_takes.ratings:LAYOUT"},
}


@dataclass(frozen=True)
class Release:
    """Builds of the release, unpacked into a folder."""

    folder: Path

    def store(self, build: str) -> Store:
        return Store(self.folder / build / "store")

    def config(self, build: str, name: str) -> Path:
        """A build's config file, by its name without its ending: the corpus, or as `builds.py` calls it."""
        return self.folder / build / f"{name}.toml"

    def ledger(self, build: str) -> Path:
        return self.store(build).root / LEDGER

    def media(self, build: str) -> Path:
        return self.store(build).root / MEDIA

    @property
    def prefect(self) -> Path:
        """The Prefect home: its database holds the demo's runs and these builds'; that of `killed` never ended."""
        return self.folder / PREFECT


def dictionary(sounds: Iterable[Path]) -> zstandard.ZstdCompressionDict:
    """The sounds, one after another, as what compression refers to."""
    return zstandard.ZstdCompressionDict(
        b"".join(path.read_bytes() for path in sounds), dict_type=zstandard.DICT_TYPE_RAWCONTENT
    )


def release(folder: Path, *builds: str) -> Release:
    """Unpack builds of the release, and the Prefect home, into a folder; without names, all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    content = zstandard.ZstdDecompressor().decompress(BUILDS.read_bytes())
    _extract(content, folder, lambda name: not builds or name.partition("/")[0] in (*builds, PREFECT))
    for store in folder.glob("*/store"):
        _move(store, {FOLDER: str(folder.absolute())})
    return Release(folder)


def unpack(store: Path, names: Iterable[str] = ()) -> Store:
    """Write the store of the release's demo into a folder; with names, only what lies at its top under these.

    Raises:
        ValueError: a sound of `data/demo` is another one since; `make.py` says how to make the archive again.
    """
    _unpack(DEMO, store, set(names))
    _move(store, {CHECKOUT: str(ROOT), f"{FOLDER}/{DEMO}": str(store.absolute())})
    return Store(store)


def older(store: Path, names: Iterable[str] = ()) -> Store:
    """Write versions of the demo from before the release into a folder, as `unpack` does."""
    _unpack(OLDER, store, set(names))
    return Store(store)


def seed(store: Path) -> Store:
    """Make a store with the ledger and salt of the release's demo, and no version: all that was asked is answered.

    Each corpus has the staging folder of a build that the release did not end, so that builds stay on its prompts.
    """
    made = unpack(store, (LEDGER, SALT))
    for name in CORPORA:
        steps = made.folder(name) / STAGING / "0/steps"
        steps.mkdir(parents=True)
        (steps / "import.output").touch()
    return made


def paid(store: Path) -> dict[str, set[tuple[object, ...]]]:
    """What a store's ledger knows of exchanges with models, by table. Every attempt is there before it is made."""
    with closing(sqlite3.connect(store / LEDGER)) as ledger:
        return {table: set(ledger.execute(f"SELECT {names} FROM {table}")) for table, names in PAID.items()}


def before(store: Store, corpus: str) -> Version:
    """The release's version of a corpus of the demo."""
    return store.find(f"{corpus}@v1")


def install(site: Path) -> None:
    """Leave in a folder of packages what `pip install` of the plug-in leaves there."""
    site.mkdir(parents=True, exist_ok=True)
    (site / PLUGIN.name).symlink_to(PLUGIN)
    facts = site / "lab_takes-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-takes\nVersion: 0.1\n")
    points = (
        f"[earmark.{group}]\n" + "".join(f"{n} = {at}\n" for n, at in them.items()) for group, them in ADDS.items()
    )
    (facts / "entry_points.txt").write_text("".join(points))


def _unpack(part: str, store: Path, wanted: set[str]) -> None:
    named: dict[str, str] = json.loads(SOUNDS.read_bytes())
    for name, sha256 in named.items():
        if not (ROOT / name).is_file() or hashlib.sha256((ROOT / name).read_bytes()).hexdigest() != sha256:
            raise ValueError(f"{name}: expected the file that {ARCHIVE.name} refers to; see tests/before/make.py")
    content = zstandard.ZstdDecompressor(dict_data=dictionary(ROOT / name for name in named)).decompress(
        ARCHIVE.read_bytes()
    )
    store.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            top, _, rest = member.name.partition("/")
            if top == part and (not wanted or rest.partition("/")[0] in wanted):
                member.name = rest
                archive.extract(member, store, filter="data")


def _extract(content: bytes, folder: Path, wanted: Callable[[str], bool]) -> None:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(folder, [member for member in archive if wanted(member.name)], filter="data")


def _move(store: Path, places: dict[str, str]) -> None:
    """Have records of runs and the media index of a store speak of this machine and of where their files lie now."""
    for record in (store / "runs").glob("*.json"):
        text = record.read_text("utf-8").replace(json.dumps(HOST), json.dumps(socket.gethostname()))
        for old, new in places.items():
            text = text.replace(json.dumps(old)[:-1], json.dumps(new)[:-1])
        record.write_text(text, "utf-8")
    if not (store / MEDIA).is_file():
        return
    with closing(sqlite3.connect(store / MEDIA)) as index:
        for path, size in index.execute("SELECT path, size FROM media").fetchall():
            old = next(old for old in places if path.startswith(f"{old}/"))
            now = Path(places[old] + path.removeprefix(old))
            if now.is_file() and now.stat().st_size == size:  # measured then, and the same now
                changed = (
                    "UPDATE media SET path = ?, changed_ns = ? WHERE path = ?",
                    (str(now), now.stat().st_mtime_ns, path),
                )
                index.execute(*changed)
        index.commit()
