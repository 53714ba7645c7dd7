"""Implement `earmark eval calibrate`: CLAP's thresholds from labelled pairs."""

from pathlib import Path
from typing import Annotated

import typer

from earmark.flows.command.options import JsonOption, StoreOption, open_store, option, print_json


def calibrate(
    pairs: Annotated[
        Path, typer.Argument(metavar="TABLE|DIR", help="A table: clip, text, label (yes or no). Or an audit's record.")
    ],
    model: Annotated[str | None, option("MODEL", "The CLAP model: a folder, a .pt file or a name on the Hub.")] = None,
    error: Annotated[
        float, option("RATE", "Most wrong texts taken as fitting, and the reverse.", min=0.001, max=0.5)
    ] = 0.05,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose CLAP's thresholds `least` and `most` for instruction-rubrics, from a hundred labelled pairs or more.

    Half of the pairs should fit, and half not, as swapped texts do not. A fresh pair goes wrong at the error rate at
    most. Scores are kept: another rate measures nothing anew.

    **Examples:**

    `earmark eval calibrate pairs.csv --model laion/clap-htsat-unfused --error 0.05`

    `earmark eval calibrate data/store/audits/instruction-rubrics/v1/alignment-1f0c2b9a`
    """
    from earmark.flows.command.console import print_result, tell
    from earmark.tasks.instruction_rubrics.calibrating import calibrate as choose
    from earmark.tasks.instruction_rubrics.calibrating import calibration_table, config_lines, scored_pairs
    from earmark.tasks.pipeline.progress import shown

    with shown():
        found = choose(scored_pairs(pairs, model, open_store(store)), error)
    if as_json:
        thresholds = {one.name: one._asdict() for one in (found.least, found.most)}
        print_json({**found._asdict(), **thresholds, "lines": config_lines(found)})
        return
    print_result(calibration_table(found))
    tell(f"{found.between:,} of {found.pairs:,} pairs score in between: neither captions nor swaps", "")
    print(config_lines(found))
