"""Replace the store in a dry run: read the store's contents, write to a temporary folder.

A dry run fetches and measures a sample of the clips unknown to the media index, and assumes that the others are sound.
It reads clips' embeddings from the store, and computes none.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from earmark.schemas.files import read_regular
from earmark.schemas.places import url_of
from earmark.schemas.rejects import AudioFault
from earmark.schemas.sqlite import connected, open_to_read
from earmark.tasks.audio.faults import LONGEST_S
from earmark.tasks.audio.index import MediaIndex
from earmark.tasks.audio.probe import Probe
from earmark.tasks.pipeline.mirror import bring
from earmark.tasks.store.versions import Store
from earmark.tasks.text.anonymity import SALT_FILE

Thing = TypeVar("Thing")
INDEX = "EARMARK_MEDIA_INDEX"
MEDIA, SIMILARITIES = "media.sqlite", "similarities.sqlite"
ASSUMED, UNFETCHED = "assumed", "unfetched"  # the first is also the codec of an unmeasured clip
UNREAD = "0" * 16  # prefix of the hash of an unmeasured clip
SAMPLE = 64  # clips to measure at most per step
MOST_SAMPLED = 256  # in all
USUAL_S = 10.0  # assumed length of a clip without a sample


@dataclass
class Looked:
    """Results of a dry run's clips."""

    # by path: `known` (measured before), `measured` (in the sample), `assumed` (not measured), `unfetched` (left behind
    # its URL), or the reason of its fault
    clips: dict[str, str] = field(default_factory=dict)
    unheard: set[str] = field(default_factory=set)  # clips, by SHA-256, without a stored embedding
    lengths: list[float] = field(default_factory=list)  # of known and measured clips, in s

    def counts(self) -> dict[str, int]:
        """Count clips by result."""
        return dict(Counter(self.clips.values()))


def media_place(store: Store) -> Path:
    """Return the path of a store's media index: `EARMARK_MEDIA_INDEX`, or `<store>/media.sqlite`.

    Machines cannot share SQLite, so each has its own index.
    """
    return Path(os.environ.get(INDEX) or store.root / MEDIA)


class SampledIndex(MediaIndex):
    """Media index that measures a sample of its unknown clips."""

    def __init__(self, path: Path, looked: Looked) -> None:
        super().__init__(path)
        self._looked = looked

    def look(
        self,
        paths: Sequence[Path | AudioFault],
        *,
        threads: int | None = None,
        longest_s: float = LONGEST_S,
        seen: Callable[[int], None] = lambda count: None,
    ) -> list[Probe | AudioFault]:
        """Look as `MediaIndex.look`; assume clips outside the sample, which is drawn by the hash of their paths."""
        clips = self._looked.clips
        files = [path for path in dict.fromkeys(paths) if isinstance(path, Path)]
        met = [path for path in files if str(path) not in clips and url_of(path)]
        away = in_order([path for path in met if not os.path.isfile(path)])  # noqa: PTH113
        some = max(0, SAMPLE - len(met) + len(away))
        bring(away[:some])
        clips |= dict.fromkeys(map(str, away[some:]), UNFETCHED)
        new = [path for path in files if str(path) not in clips and os.path.isfile(path)]  # noqa: PTH113
        new = in_order([path for path, one in zip(new, self.known(new), strict=True) if one is None])
        room = max(0, min(SAMPLE, MOST_SAMPLED - self._looked.counts().get("measured", 0)))
        clips |= dict.fromkeys(map(str, new[:room]), "measured") | dict.fromkeys(map(str, new[room:]), ASSUMED)
        asked = [path for path in files if clips.get(str(path)) not in (ASSUMED, UNFETCHED)]
        probes = dict(zip(asked, super().look(asked, threads=threads, longest_s=longest_s, seen=seen), strict=True))
        for path, probe in probes.items():
            if isinstance(probe, Probe):
                self._looked.lengths.append(probe.duration_s)
                clips.setdefault(str(path), "known")
            else:
                clips[str(path)] = probe.reason
        seen(len(files) - len(asked))
        usual = median(self._looked.lengths or [USUAL_S])
        return [
            path if isinstance(path, AudioFault) else probes.get(path) or assumed(path, usual) for path in paths
        ]  # fmt: skip


def assumed(path: Path, duration_s: float) -> Probe:
    """Return the probe of an unmeasured clip, with a hash of its path that matches no file's bytes."""
    return Probe(UNREAD + _hash(path)[len(UNREAD) :], duration_s, 16_000, 1, -1.0, -20.0, 0.0, ASSUMED)


def in_order(things: Sequence[Thing], path_of: Callable[[Any], Path] = lambda thing: thing) -> list[Thing]:
    """Return things in a dry run's sampling order: by the hash of their paths."""
    return sorted(things, key=lambda thing: _hash(path_of(thing)))


def _hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()


@contextmanager
def scratch_store(store: Store) -> Iterator[Store]:
    """Yield a store with the contents of another one, with its writes in a temporary folder.

    Databases and the salt are copies; versions are links; other folders are new, with links to their entries.
    """
    with TemporaryDirectory(prefix="earmark-") as name:
        root = Path(name)
        corpora = {*store.corpora()}
        for entry in store.root.absolute().iterdir() if store.root.is_dir() else ():
            if entry.name in corpora:
                (root / entry.name).symlink_to(entry)
            elif entry.is_dir():
                (root / entry.name).mkdir()
                for inner in entry.iterdir():
                    (root / entry.name / inner.name).symlink_to(inner)
        if (salt := store.root / SALT_FILE).is_file():
            (root / SALT_FILE).write_bytes(read_regular(salt))
            (root / SALT_FILE).chmod(0o600)
        for source, copy in ((media_place(store), MEDIA), (store.root / SIMILARITIES, SIMILARITIES)):
            if source.is_file():
                with closing(open_to_read(source)) as connection, connected(root / copy) as into:
                    connection.backup(into)
        yield replace(store, root=root, looked=Looked())
