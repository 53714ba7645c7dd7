"""Tables that are counted from others, counted anew where some of those rows were withdrawn. No Prefect.

A corpus with such tables (`Table.counted`) names `recount="earmark.tasks.<room>.<module>:recount"` in `Corpus`. That
function gets the stage, whose tables are without what was withdrawn, and the build's config. It reads nothing else,
writes the counted tables again, and returns the steps whose accounts are other ones now. Where nothing was withdrawn,
it would write the same bytes.

Of the card's own sections, those are told of such a version that `Corpus.card` makes from the tables that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import StoreError
from earmark.schemas.registry import load
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.staging import Stage


def retelling(corpus: Corpus) -> Callable[[Stage], Mapping[str, str]]:
    """What tells the card's own sections from the tables."""

    def retell(stage: Stage) -> Mapping[str, str]:
        return {} if corpus.card is None else load(corpus.card)(stage)

    return retell


def recounting(corpus: Corpus, config: Mapping[str, Any]) -> Callable[[Stage], Sequence[Step]]:
    """What counts a corpus's tables anew; raises a StoreError if the config is one of an earlier release.

    Args:
        corpus: the corpus.
        config: the build config as a manifest has it.
    """

    def recount(stage: Stage) -> Sequence[Step]:
        if corpus.recount is None:
            return ()
        try:
            read = corpus.config.model_validate(config, context={"file": "manifest", "recorded": True})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise StoreError(
                f"{corpus.name}: the version's config is of an earlier release ({where}: {first['msg']}); build the "
                "corpus again: the build leaves out what was withdrawn"
            ) from None
        counted: Sequence[Step] = load(corpus.recount)(stage, read)
        return counted

    return recount
