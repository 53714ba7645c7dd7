"""Builds killed at random moments: readers never see a torn version, and the next build ends as if none had died."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from earmark.tasks.store.staging import STAGING
from earmark.tasks.store.versions import MANIFEST, Store, verify
from tests.builds import Builds, build_version, contents_of, read_config

CLIPS = 3_000
ROOT = Path(__file__).resolve().parents[2]
CORPUS = "mos-preferences"
BEFORE_COMMIT = "steps/pairs.json"  # the last thing that a build does before it commits

CONFIG = """
seed = {seed}
[[sources]]
name = "one"
format = "table"
files = {{ train = "one-train.csv", test = "one-test.csv" }}
columns = {{ file = "f", mos = "m", system = "s", speaker = "p", content = "c" }}
[[sources]]
name = "two"
format = "table"
files = {{ train = "two.csv" }}
columns = {{ file = "f", mos = "m", listener = "s" }}
split = "by-content"
[quotas.one]
train = 900
"""


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two configs over one set of lists: the second's version shares files with the first's."""
    folder = tmp_path_factory.mktemp("lists")
    rng = random.Random(8)
    for name in ("one-train", "one-test", "two"):
        clips = [rng.randrange(CLIPS) for _ in range(CLIPS // 3)]  # some stand there twice, with one system and speaker
        rows = [
            f"{name}-{clip}.wav,{1 + rng.randrange(33) / 8},s{rng.randrange(30) if name == 'two' else clip % 30},"
            f"p{clip % 9},c{clip * 7 % 80}"
            for clip in clips
        ]
        (folder / f"{name}.csv").write_text("\n".join(["f,m,s,p,c", *rows]) + "\n")
    paths = [folder / f"build-{seed}.toml" for seed in (1, 2)]
    for seed, path in enumerate(paths, 1):
        path.write_text(CONFIG.format(seed=seed))
    return paths


@pytest.fixture(scope="module")
def unharmed(configs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store whose builds were never interrupted."""
    root = tmp_path_factory.mktemp("unharmed")
    for path in configs:
        build_version(read_config(path), root)
    return Store(root)


class Killer(Builds):
    """Starts builds in processes of their own and kills them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.kills = 0

    def build(self, config: Path, store: Path) -> float:
        """One build that nobody kills; the seconds that it took."""
        started = time.monotonic()
        self.start(config, store)
        assert self.said() == 0
        return time.monotonic() - started

    def harm(self, config: Path, store: Path, build_s: float) -> None:
        """One build, killed at a random moment of it; every third time close to its commit."""
        near_commit = self.rng.random() < 1 / 3
        child = self.start(config, store)
        if near_commit:
            while not self.ended(0.001) and not list((store / CORPUS).glob(f"{STAGING}/*/{BEFORE_COMMIT}")):
                pass
            self.ended(self.rng.uniform(0, 0.15 * build_s))
        else:
            self.ended(self.rng.uniform(0, 0.8 * build_s))  # most go on from what an earlier one left
        self.kill(child)
        code = self.said()
        assert code in (0, -signal.SIGKILL)
        self.kills += code != 0


def check(store: Store, unharmed: Store) -> int:
    """Every folder that looks like a version is one, whole and as if no build had been killed; how many there are."""
    folder = store.folder(CORPUS)
    looks = {path.name for path in folder.glob("v*")} if folder.is_dir() else set()
    assert looks == {version.name for version in store.versions(CORPUS)}
    for version in store.versions(CORPUS):
        assert (version.folder / MANIFEST).is_file()
        assert verify(version) == []
        assert contents_of(version.folder) == contents_of(unharmed.find(f"{CORPUS}@{version.name}").folder)
    return len(looks)


def harass(kills: int, seed: int, configs: list[Path], unharmed: Store, folder: Path) -> None:
    """Kill builds, store after store, each until both its versions are there. Builds that were quicker do not count."""
    stores = [Store(folder / "0")]
    versions = 0
    with Killer(seed) as killer:
        killer.build(configs[0], folder / "first")  # waits for the imports
        build_s = killer.build(configs[0], folder / "timed")
        while killer.kills < kills:
            if versions == len(configs):
                stores.append(Store(folder / f"{len(stores)}"))
                versions = 0
            killer.harm(configs[versions], stores[-1].root, build_s)
            versions = check(stores[-1], unharmed)
        for store in stores:
            for config in configs:
                killer.build(config, store.root)
            assert_clean(store, unharmed)


def assert_clean(store: Store, unharmed: Store) -> None:
    """After undisturbed runs a store holds what undisturbed builds leave, and nothing else."""
    assert check(store, unharmed) == len(unharmed.versions(CORPUS))
    here, there = (
        {path.relative_to(root).as_posix() for path in root.rglob("*")} for root in (store.root, unharmed.root)
    )
    assert here == there
    assert not [path for path in here if STAGING in path or path.endswith(".tmp")]


@pytest.mark.slow
def test_build_as_a_process_of_its_own(configs: list[Path], unharmed: Store, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.builds", str(configs[0]), str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    assert check(Store(tmp_path), unharmed) == 1


@pytest.mark.slow
def test_eight_kills(configs: list[Path], unharmed: Store, tmp_path: Path) -> None:
    harass(8, 1, configs, unharmed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_kills(configs: list[Path], unharmed: Store, tmp_path: Path) -> None:
    harass(50, 2, configs, unharmed, tmp_path)
