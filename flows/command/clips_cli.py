"""Implement `earmark eval best-of` and `earmark eval rubric`: pick and judge clips without a version."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from earmark.flows.command.options import (
    BaseUrlOption,
    JsonOption,
    SettingsOption,
    StoreOption,
    open_store,
    option,
    print_json,
    print_record,
)


def best_of(
    generations: Annotated[Path, typer.Argument(metavar="FILE", help="The table of generations, as a study reads it.")],
    scores: Annotated[Path, option("--scores FILE", "A row a generation: clip, and columns of numbers.")],
    out: Annotated[Path, option("--out -o DIR", "The folder of the tables and ranked lists.")],
    sizes: Annotated[list[int], option("--n N", "A number of candidates; give several.", min=1)] = [1, 3, 10],  # noqa: B006
    by: Annotated[str, option("COLUMN", "The columns whose mean decides, as a+b.")] = "musicality+alignment",
    picks: Annotated[Path | None, option("FILE", "Also write the picks, beside the clips, for a study.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Pick the best of N generations of each prompt by a reward model's scores, and tabulate all scores by N.

    The candidates of a smaller N are among those of a larger one. A model with one clip a prompt stands beside.

    **Example:** `earmark eval best-of music/generations.csv --scores rm.csv --picks music/picks.csv --out best-of-n`
    """
    from earmark.tasks.people.best_of_n import best_of_n, best_of_page

    record = best_of_n(generations, scores, sizes, by.split("+"), picks, out)
    print_record(record, best_of_page, as_json, "tables and ranked lists")


def rubric(
    clips: Annotated[Path, option("DIR|TABLE", "A table of clips and instructions, or clips with texts beside them.")],
    model: Annotated[str, option("NAME", "The judge, such as vllm:cucl2/AnyAudio-Judge-7B.")],
    mode: Annotated[str, option("NAME", "rubric (item by item), array (all items at once) or holistic.")] = "rubric",
    language: Annotated[
        Literal["en", "zh"] | None, option("", "Of rows that name none. Default: the instruction's own.")
    ] = None,
    domain: Annotated[
        Literal["speech", "sound", "music", "mixed"], option("", "Of rows that name none: how it is taken apart.")
    ] = "mixed",
    writer: Annotated[str | None, option("NAME", "It takes instructions apart. Default: the judge.")] = None,
    config: Annotated[
        Path | None, option("--config -c FILE", "In place of --writer: a config of instruction-rubrics.")
    ] = None,
    base_url: BaseUrlOption = None,
    settings: SettingsOption = None,
    out: Annotated[
        Path | None, option("--out -o FILE", "Write scores, items and evidence, a JSON line a clip.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge clips against instructions, item by item (AnyAudio-Judge): score, decision, mean score by generator.

    A table has the columns clip and instruction, and may have model, rating, language and domain. Scores are correlated
    with ratings. The ledger keeps answers.

    **Examples:**

    `earmark eval rubric --clips clips.csv --model openai:gpt-audio --writer openai:gpt-4.1 --out judged.jsonl`

    `earmark eval rubric --clips generated/ --model vllm:cucl2/AnyAudio-Judge-7B --config bench.toml --domain speech`
    """
    import json

    from earmark.flows.command.console import print_result, tell
    from earmark.flows.command.ending import stoppable
    from earmark.tasks.evaluation.judging import examinee
    from earmark.tasks.instruction_rubrics.judging import by_model, judge_clips, writing
    from earmark.tasks.pipeline.progress import shown
    from earmark.tasks.store.files import write_text

    judge, wording = examinee(model, base_url, settings), writing(writer, model, base_url, config)
    with stoppable("answers are kept; run the same command again to continue"), shown():
        rows = judge_clips(clips, open_store(store), judge, wording, mode=mode, language=language, domain=domain)
    if out is not None:
        write_text(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    if as_json:
        print_json(rows)
        return
    print_result(by_model(rows))
    lost = [row for row in rows if row["score"] is None]
    tell(*(f"without an answer: {row['clip']}: {row['reason']}" for row in lost[:5]))
    if out is not None:
        tell(f"{len(rows):,} clips in {out}")
