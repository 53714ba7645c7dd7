"""Where shards are worked on: what a config may say, what travels, what is refused, and how processes share an
annotator."""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from prefect.context import SettingsContext, hydrated_context, serialize_context
from prefect.futures import PrefectFutureList
from prefect.settings import (
    PREFECT_API_KEY,
    PREFECT_API_URL,
    Profile,
    Settings,
    get_current_settings,
    temporary_settings,
)

import earmark.tasks.annotation.errors
from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import ENGINE, Engine
from earmark.schemas.errors import ConfigError, EarmarkError, MissingExtraError
from earmark.schemas.instrumentals import Instrumentals, Separation
from earmark.schemas.places import place_of
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.toml import parse_config
from earmark.schemas.tracks import TrackSource
from earmark.tasks.audio.encode import Encoder
from earmark.tasks.instrumentals.separated import Separators
from earmark.tasks.pipeline import code, preflight, shards
from earmark.tasks.pipeline import sessions as visiting
from earmark.tasks.pipeline.progress import Work
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.pipeline.rows import Rows
from earmark.tasks.pipeline.sessions import SharedSession, Visitor, clip_media
from earmark.tasks.pipeline.shards import (
    ANNOTATE,
    AUDIO,
    GPU,
    Awaited,
    Machine,
    OnCluster,
    RayCluster,
    Share,
    _reachable_prefect,
    check_machines,
    look_around,
    travelling,
)
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store
from tests.builds import config_from
from tests.pseudo_preferences.music import config_of, values_of

URL = "http://127.0.0.1:9/v1"
HERE = Machine("one", "one/boot/ns", True, "", "code", "postgresql://db/earmark", False)
NAMED = PseudoPreferences(**values_of(URL))


def stage_in(folder: Path) -> Stage:
    (folder / "staging").mkdir(parents=True)
    return Stage(Store(folder), "pseudo-preferences", "key", folder / "staging")


def shared(folder: Path, config: AnnotatorConfig) -> SharedSession:
    """A session on a store, as steps get it."""
    return SharedSession(Store(folder), config, clip_media(Store(folder)))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have each unpickled session be one of a process of its own; all are closed with the test."""
    with ExitStack() as stack:

        def arrive(sent: bytes) -> Visitor:
            monkeypatch.setattr(visiting, "_VISITORS", {})
            came: Visitor = pickle.loads(sent)
            stack.callback(came.close)
            return came

        yield arrive


# -- the config -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "engine"),
    [
        (None, ("threads", None, None)),
        ("ray", ("ray", None, None)),
        ("ray:3", ("ray", None, 3)),
        ("ray:auto", ("ray", "auto", None)),
        ("ray:10.0.0.1:6379", ("ray", "10.0.0.1:6379", None)),
    ],
)
def test_the_environment_says_where_shards_are_worked_on(
    monkeypatch: pytest.MonkeyPatch, written: str | None, engine: tuple[str, str | None, int | None]
) -> None:
    monkeypatch.setenv(ENGINE, written or "")
    assert Engine.of_environment() == engine


@pytest.mark.parametrize("written", ["spark", "threads:2", "ray:0"])
def test_a_fault_of_the_engine_is_one_line_before_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setenv(ENGINE, written)
    with pytest.raises(preflight.Faults) as caught:
        preflight.check(find_corpus("pseudo-preferences"), config_of(tmp_path, URL), Store(tmp_path / "store"))
    expected = (
        f"EARMARK_ENGINE: expected threads, ray, ray:8 (processors), ray:auto or ray:HOST:PORT, found '{written}'"
    )
    assert expected in caught.value.lines


def test_a_config_with_an_engine_names_the_variable(tmp_path: Path) -> None:
    values = {**values_of(URL, engine="ray:3"), "judge": {"model": "openai:tiny"}}
    with pytest.raises(ConfigError, match=r"key 'engine' is no option any more: EARMARK_ENGINE=ray:8 in the env"):
        parse_config(PseudoPreferences, values, tmp_path / "build.toml")


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prefect_ray", None)
    with ExitStack() as stack, pytest.raises(MissingExtraError, match=r"'\.\[ray\]'"):
        RayCluster(stack, Engine(runner="ray"))
    monkeypatch.setattr(preflight, "find_spec", lambda _: None)
    monkeypatch.setenv(ENGINE, "ray")
    with pytest.raises(MissingExtraError, match=r"EARMARK_ENGINE=ray needs"):
        preflight.check_engine()


def test_a_ray_that_is_slow_to_start_is_started_again() -> None:
    faults: list[Exception] = [Exception("timed out during startup")] * 2

    def start(**_: Any) -> None:
        if faults:
            raise faults.pop()

    shards._start_own(start)
    faults += [Exception("timed out during startup")] * 3
    with pytest.raises(EarmarkError, match="Ray does not start on this machine: timed out"):
        shards._start_own(start)
    faults.append(ValueError("ours"))
    with pytest.raises(ValueError, match="ours"):
        shards._start_own(start)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1", "127.0.0.1:port"])
def test_a_ray_that_is_not_there_is_told_at_once(address: str) -> None:
    pytest.importorskip("prefect_ray", reason="without the extra ray")
    with ExitStack() as stack, pytest.raises(ConfigError, match="no Ray answers at") as caught:
        RayCluster(stack, Engine(runner="ray", address=address))
    assert "\n" not in str(caught.value)


# -- what travels ---------------------------------------------------------------------------------------------


def test_paths_travel_absolute_and_progress_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stage = travelling(stage_in(Path("store")))
    assert (stage.store.root, stage.folder) == (tmp_path / "store", tmp_path / "store/staging")
    config = PseudoPreferences(**values_of(URL), base="in")
    assert travelling(config).base == tmp_path / "in"
    assert PseudoPreferences(**values_of(URL)).base == tmp_path
    assert travelling(Work("label", 3)) is None
    assert travelling(7) == 7
    inputs = travelling({"rows": Rows(Path("store/rows.parquet"), 3), "work": Work("label", 3)})
    assert inputs == {"rows": Rows(tmp_path / "store/rows.parquet", 3), "work": None}
    assert isinstance(inputs["rows"], Rows)


def test_who_works_in_another_folder_finds_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visiting, "_VISITORS", {})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    session = shared(Path("store"), AnnotatorConfig(annotator="openai:m", base_url=URL))
    config = Instrumentals(corpus="instrumentals", source=TrackSource(name="own", format="table", tracks="t.jsonl"))
    separators = Separators(Separation(), config.path, Store(Path("store")))
    sent = pickle.dumps((session, separators))
    monkeypatch.chdir(tmp_path / "elsewhere")
    came, there = pickle.loads(sent)
    assert came._made_of[0].root == tmp_path / "store"
    _, resolve, store = there._made_of
    assert (resolve("m.ckpt"), store.root) == (tmp_path / "m.ckpt", tmp_path / "store")


def test_a_ledger_that_is_named_from_another_folder_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_in(tmp_path)
    monkeypatch.setenv("EARMARK_LEDGER", "answers.sqlite")
    monkeypatch.chdir(tmp_path)
    here = look_around(stage, NAMED, [])
    monkeypatch.chdir(tmp_path / "staging")
    with pytest.raises(EarmarkError, match=r"would keep answers in .*/staging/answers.sqlite, this machine in"):
        check_machines(stage, here, [look_around(stage, NAMED, [])])


def test_no_secret_of_prefects_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {
        "PREFECT_API_URL": "http://127.0.0.1:9/api",
        "PREFECT_API_KEY": "marker-1",
        "PREFECT_API_AUTH_STRING": "marker-2",
        "PREFECT_API_DATABASE_CONNECTION_URL": "postgresql+asyncpg://user:marker-3@host/db",
        "PREFECT_CLIENT_CUSTOM_HEADERS": '{"Authorization": "marker-4"}',
    }
    for name, value in here.items():
        monkeypatch.setenv(name, value)
    sent: list[dict[str, Any]] = []

    class Sends(Counted):
        def submit(self, share: Share, *given: Any) -> Any:
            super().submit(share)
            sent.append(serialize_context())

    profile = Profile(name="mine", settings={PREFECT_API_KEY: "marker-5"})
    with SettingsContext(profile=profile, settings=Settings()):
        assert cloudpickle.dumps(serialize_context()).count(b"marker") == 5
        takes(Sends((4, 0)), Engine(runner="ray"))
    assert b"marker" not in cloudpickle.dumps(sent)
    for name in here:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_API_KEY", "its own")
    with hydrated_context(sent[0]):
        there = get_current_settings().api
        assert (there.url, there.key.get_secret_value() if there.key else None) == (here["PREFECT_API_URL"], "its own")


def all_errors(kind: type[EarmarkError]) -> list[type[EarmarkError]]:
    return [kind, *(one for below in kind.__subclasses__() for one in all_errors(below))]


def test_errors_come_home_from_other_processes() -> None:
    assert earmark.tasks.annotation.errors.LedgerError in all_errors(EarmarkError)
    for kind in all_errors(EarmarkError):
        if kind.__init__ is Exception.__init__ or kind.__init__ is EarmarkError.__init__:
            error = kind("what was found")
        elif kind is MissingExtraError:
            error = kind("a model", "audio")
        else:
            continue
        home = pickle.loads(pickle.dumps(error))
        assert (type(home), str(home)) == (kind, str(error))


def test_encoders_and_separators_are_one_for_each_process(tmp_path: Path) -> None:
    encoder = Encoder(5, 7)
    sent = pickle.dumps((encoder, clip_media(Store(tmp_path), encoder)))
    first, media = pickle.loads(sent)
    again, _ = pickle.loads(sent)
    assert first is again is media.load_audio
    assert first._most == (5, 7)
    config = config_of(tmp_path, URL)
    separators = Separators(Separation(), config.path, Store(tmp_path))
    sent = pickle.dumps(separators)
    assert pickle.loads(sent) is pickle.loads(sent)
    with pickle.loads(sent).one() as separator:
        assert separator.name == "centre-removal"


# -- which machines -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ({"sees": False}, "two has no folder"),
        ({"lacks": "s3://bucket/audio"}, "two does not find the input 's3://bucket/audio', which is here"),
        ({"release": "other"}, "two runs other code or libraries"),
        ({"ledger": "/shared/ledger.sqlite"}, "set EARMARK_LEDGER alike"),
        ({"own_index": False}, "set EARMARK_MEDIA_INDEX"),
    ],
    ids=str,
)
def test_machines_that_cannot_work_on_a_build_are_refused(tmp_path: Path, there: dict[str, Any], message: str) -> None:
    stage, fit = stage_in(tmp_path), HERE._replace(host="two", system="two/boot/ns", own_index=True)
    check_machines(stage, HERE, [HERE, fit])
    with pytest.raises(EarmarkError) as caught:
        check_machines(stage, HERE, [HERE, fit._replace(**there)])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_machines_do_not_share_sqlite(tmp_path: Path) -> None:
    stage, sqlite = stage_in(tmp_path), HERE._replace(ledger="/shared/ledger.sqlite")
    check_machines(stage, sqlite, [sqlite, sqlite])
    with pytest.raises(EarmarkError, match="EARMARK_LEDGER=postgresql://"):
        check_machines(stage, sqlite, [sqlite._replace(system="two/boot/ns", own_index=True)])


def test_a_machine_says_which_input_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_in(tmp_path)
    for folder in ("a", "b"):
        monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / folder))
        place_of("s3://bucket/pool").mkdir(parents=True)
    (tmp_path / "prompts.jsonl").touch()
    values = values_of(URL, prompts=str(tmp_path / "prompts.jsonl"), generations="s3://bucket/pool")
    config = config_from(PseudoPreferences, values, tmp_path / "conf" / "build.toml")
    inputs = config.inputs()
    assert inputs == [str(tmp_path / "prompts.jsonl"), "s3://bucket/pool"]
    assert look_around(stage, config, inputs).lacks == ""
    place_of("s3://bucket/pool").rmdir()  # another cache, or none that is shared
    assert look_around(stage, config, inputs).lacks == "s3://bucket/pool"
    (tmp_path / "prompts.jsonl").unlink()
    assert look_around(stage, config, inputs).lacks == str(tmp_path / "prompts.jsonl")


def test_the_code_of_a_build_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_in(tmp_path)
    found = look_around(stage, NAMED, [])
    assert found.release != look_around(replace(stage, corpus="mos-preferences"), NAMED, []).release
    with monkeypatch.context() as patch:
        other = (tmp_path / "flow.py", code.Parsed("0", (), (), ()))
        patch.setattr(code, "_closure", lambda _: {"earmark.flows.pseudo_preferences": other})
        assert found.release != look_around(stage, NAMED, []).release  # a flow that calls other code
    for unknown in ("pseudo_preferences", "flows.nothing"):  # as a deployment may name a flow that it loads by path
        with pytest.raises(ValueError, match="expected a module of ours"):
            code.code_digest(unknown)


def test_a_process_finds_what_is_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_in(tmp_path)
    monkeypatch.setenv("EARMARK_LEDGER", "postgresql://user:secret@db:5432/earmark")
    found = look_around(stage, NAMED, [])
    assert found.sees
    assert found.ledger == "postgresql://db:5432/earmark"
    check_machines(stage, found, [found])


@pytest.mark.slow
def test_clusters_side_by_side_report_to_one_temporary_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    engine = Engine(runner="ray")
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        with ExitStack() as one, ExitStack() as two:
            one.enter_context(_reachable_prefect(engine))
            named = os.environ["PREFECT_API_URL"]
            two.enter_context(_reachable_prefect(engine))
            one.close()
            assert os.environ["PREFECT_API_URL"] == named
        assert "PREFECT_API_URL" not in os.environ
        elsewhere = _reachable_prefect(Engine(runner="ray", address="10.0.0.1:6379"))
        with pytest.raises(ConfigError, match="a cluster that runs elsewhere"), elsewhere:
            pass


class Counted:
    """A cluster that only notes what shards take."""

    def __init__(self, *offers: tuple[float, float]) -> None:
        self.offers = list(offers)
        self.taken: list[Share] = []

    def at_once(self, share: Share) -> int:
        return 4

    def submit(self, share: Share, *given: Any) -> Any:
        self.taken.append(share)


def takes(cluster: Counted, engine: Engine, **given: Any) -> Share:
    """What a shard takes that is given these."""
    runner = OnCluster(engine)
    runner._cluster, runner.shards = cluster, 3  # type: ignore[assignment]
    runner.submit(None, given)  # type: ignore[arg-type]
    return cluster.taken[-1]


def test_what_a_shard_is_given_says_what_it_takes(tmp_path: Path) -> None:
    engine = Engine(runner="ray", address="auto")
    asks = shared(tmp_path, AnnotatorConfig(annotator="openai:m", base_url=URL, max_concurrency=10))
    holds = shared(tmp_path, AnnotatorConfig(annotator="transformers:m"))
    config = config_of(tmp_path, URL)
    model = Separators(Separation(model="m.ckpt"), config.path, Store(tmp_path))
    plain = Separators(Separation(), config.path, Store(tmp_path))
    both, none = Counted((4, 1), (4, 0)), Counted((4, 0))
    assert takes(both, engine, session=asks, shard=0) == ANNOTATE
    assert takes(both, engine, sessions={"a": asks, "b": holds}) == GPU
    assert takes(both, engine, separators=model) == GPU
    assert takes(none, engine, separators=model) == AUDIO
    assert takes(both, engine, separators=plain) == AUDIO
    assert asks.shared_by == 3
    with pytest.raises(ConfigError, match=r"EARMARK_ENGINE: a shard takes 1 .* as much: 0.5 and 0$"):
        takes(Counted((0.5, 0), (0.5, 0)), engine, shard=0)


def test_a_fault_of_the_cluster_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = type("KilledWorker", (Exception,), {"__module__": "distributed.scheduler"})

    def lose(*_: Any) -> list[Any]:
        raise fault

    monkeypatch.setattr(PrefectFutureList, "result", lose)
    fault: Exception = killed("judge-1 was on 4 workers that died\nand more")
    with pytest.raises(EarmarkError, match="the cluster lost a shard: judge-1 was on 4 workers that died; what is"):
        Awaited([]).result()
    fault = ValueError("ours")
    with pytest.raises(ValueError, match="ours"):
        Awaited([]).result()
