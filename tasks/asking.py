"""A session with a model: the store's ledger, the clips' audio, progress on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from schemas.annotation import AnnotatorConfig
from tasks.annotation.backend import Media
from tasks.annotation.progress import Progress
from tasks.annotation.request import Audio
from tasks.annotation.session import Session
from tasks.audio.encode import Encoder
from tasks.audio.measure import measure
from tasks.ledger import ledger_address
from tasks.progress import telling
from tasks.store.versions import Store


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
