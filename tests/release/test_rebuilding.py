"""In which order corpora are rebuilt, and what is skipped when one fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.flows.command.rebuild_plan import read_rebuild
from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import ConfigError
from earmark.schemas.rebuild import Member
from earmark.tasks.release.rebuilding import Ending, in_order, skip_reason
from earmark.tasks.store.versions import Store

NAMES = ("ant", "bee", "cat", "dog", "elk")


class Reading(BuildConfig):
    """A config that reads the corpora that it says."""

    specs: tuple[str, ...] = ()

    def reads(self) -> tuple[str, ...]:
        return self.specs


def members(**reads: tuple[str, ...]) -> dict[str, tuple[Member, BuildConfig]]:
    """Corpora with what each reads."""
    return {
        name: (Member(corpus=name, config=Path(f"{name}.toml")), Reading(corpus=name, specs=specs))
        for name, specs in reads.items()
    }


@pytest.mark.slow
@given(st.permutations(NAMES), st.data())
def test_every_corpus_comes_after_what_it_reads(tmp_names: list[str], data: st.DataObject) -> None:
    reads = {
        name: tuple(data.draw(st.sets(st.sampled_from(tmp_names[:at]))) if at else ())
        for at, name in enumerate(tmp_names)
    }
    listed = data.draw(st.permutations(tmp_names))
    places = in_order(members(**{name: reads[name] for name in listed}), Store(Path("/nowhere")))
    order = [place.member.corpus for place in places]
    assert sorted(order) == sorted(NAMES)
    for place in places:
        assert set(place.after) == set(reads[place.member.corpus])
        assert all(order.index(other) < order.index(place.member.corpus) for other in place.after)


def test_a_circle_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"read each other: .*ant"):
        in_order(members(ant=("bee",), bee=("ant",)), Store(Path("/nowhere")))


def test_a_named_version_that_is_there_is_not_waited_for(tmp_path: Path) -> None:
    store = Store(tmp_path)
    wanted = members(ant=(), bee=("ant@v1", "bee@v1"), cat=("fox@v1",))
    assert {place.member.corpus: place.after for place in in_order(wanted, store)} == {
        "ant": (),
        "bee": ("ant",),
        "cat": (),
    }


def test_what_reads_a_failed_corpus_is_skipped() -> None:
    good = Ending("ant", "built", "v1")
    assert skip_reason([good, Ending("bee", "not published", "v2")]) is None
    assert (
        skip_reason([good, Ending("bee", "failed"), Ending("cat", "skipped")]) == "bee, cat did not come to a version"
    )


def test_bad_configs_are_told_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "rebuild.toml"
    path.write_text('[[builds]]\ncorpus = "captions"\nconfg = "c.toml"\n')
    with pytest.raises(ConfigError, match=r"unknown key 'builds\[0\].confg'; did you mean 'config'"):
        read_rebuild(path)
    path.write_text('[[builds]]\ncorpus = "captions"\nconfig = "c.toml"\n' * 2)
    with pytest.raises(ConfigError, match="expected each corpus once, found captions, captions"):
        read_rebuild(path)
