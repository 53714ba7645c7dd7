"""Tables that are counted from others, counted anew where some of those rows were withdrawn. No Prefect.

A corpus with such tables (`Table.counted`) names `recount="tasks.<room>.<module>:recount"` in its `Corpus`. That
function gets the stage, whose tables are without what was withdrawn, and the build's config. It reads nothing else,
writes the counted tables again, and returns the steps whose accounts are other ones now. Where nothing was withdrawn,
it would write the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from schemas.corpus import Corpus
from tasks.store.manifest import Step
from tasks.store.staging import Stage


def recounting(corpus: Corpus, config: Mapping[str, Any]) -> Callable[[Stage], Sequence[Step]]:
    """What counts a corpus's tables anew.

    Args:
        corpus: the corpus.
        config: the build config as a manifest has it.
    """

    def recount(stage: Stage) -> Sequence[Step]:
        if corpus.recount is None:
            return ()
        module, _, name = corpus.recount.partition(":")
        counted: Sequence[Step] = getattr(import_module(module), name)(stage, corpus.config.model_validate(config))
        return counted

    return recount
