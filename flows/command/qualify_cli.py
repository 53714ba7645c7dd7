"""`earmark qualify`: the judges of a build answer gold, and nothing is built."""

from __future__ import annotations

from typing import Any

from earmark.flows.command.options import ConfigOption, CorpusArgument, JsonOption, StoreOption, open_store, print_json


def qualify(
    corpus: CorpusArgument, config: ConfigOption, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Have the judges of a build answer gold (`[judge.qualify]`), and print how right they are. Builds nothing.

    The answers stay in the ledger: the build does not pay for them again. Ends with 1 where a judge is not good enough.

    **Example:** `earmark qualify pseudo-preferences --config my-music.toml`
    """
    from earmark.flows.command.ending import stoppable
    from earmark.flows.command.running import story_of
    from earmark.schemas.errors import ConfigError, Faults
    from earmark.schemas.judges import QUALIFICATION, Qualified
    from earmark.tasks.build.progress import shown
    from earmark.tasks.evaluation.qualification import qualify_alone

    known, story, settings = story_of(corpus, config)
    if not isinstance(settings, Qualified) or QUALIFICATION not in known.tables:
        raise ConfigError(
            f"{known.name}: no judge of this corpus answers gold; pseudo-preferences' and instruction-rubrics' do"
        )
    with shown(), stoppable("answers are kept; run the same command again to continue"):
        figures, faults = qualify_alone(known, story, settings, open_store(store))
    print_json({"figures": figures, "faults": faults}) if as_json else _print(figures)
    if faults:
        raise Faults(tuple(faults))


def _print(figures: list[dict[str, Any]]) -> None:
    from earmark.flows.command.console import console, grid_of

    shares = {
        **{"right": "accuracy", "agreed right": "agreed_accuracy", "first": "share_first", "second": "share_second"},
        **{"tie": "share_tie", "TPR": "tpr", "FPR": "fpr", "weight": "weight"},
    }
    rows = [
        (*(row[name] for name in ("judge", "dimension", "domain", "control")),
         *(f"{row[name]:,}" for name in ("requests", "answers", "known")),
         *("" if row[name] is None else f"{row[name]:.3f}" for name in shares.values()))
        for row in figures
    ]  # fmt: skip
    console.print(grid_of("judge", "dimension", "domain", "control", "requests", "answers", "known", *shares, rows=rows,
                          right=11))  # fmt: skip
