"""A session with a model: the store's ledger, the clips' audio, progress on the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.annotation import AnnotatorConfig
from tasks.annotation.backend import Media
from tasks.annotation.progress import Progress
from tasks.annotation.request import Audio
from tasks.annotation.session import Session
from tasks.audio.encode import Encoder
from tasks.audio.measure import measure
from tasks.progress import telling
from tasks.store.versions import Store


def ledger_address(store: Store) -> str:
    """Where answers are kept: `EARMARK_LEDGER` (a file or a postgresql:// URL), else `<store>/ledger.sqlite`."""
    return os.environ.get("EARMARK_LEDGER") or str(store.root / "ledger.sqlite")


def has_ledger(store: Store) -> bool:
    """Whether there are answers already: a dry run must not make an empty ledger."""
    address = ledger_address(store)
    return "://" in address or Path(address).is_file()


@contextmanager
def asking(store: Store, config: AnnotatorConfig) -> Iterator[Session]:
    """An annotator whose pace, budget and progress all shards of a build share."""
    with telling(f"ask {config.annotator}") as tell:

        def report(progress: Progress) -> None:
            tell(progress.line())

        with Session(config, ledger=ledger_address(store), media=clip_media(), on_progress=report) as session:
            yield session


def clip_media() -> Media:
    """How annotators get at clips: encoded for models, measured for builtin judges."""
    encoder = Encoder()

    def measured(part: Audio) -> dict[str, float]:
        samples, rate = encoder.span(part)
        return measure(samples, rate).as_dict()

    return Media(load_audio=encoder, measure=measured)
