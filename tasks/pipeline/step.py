"""Declare the steps of a corpus, run or skip them, and keep their counts.

    @step("select", unit="clips", follows="index")
    def select_clips(stage: Stage, config: Captions, index: Rows) -> Done[Rows]:
        ...
        return Done(selected, Account(entered=index.count, kept=selected.count, rejects=rejects))

A step is a Prefect task inside a flow run, and a plain function elsewhere (a dry run, a test). It writes rejects and
accounts, then its output, so that a resumed build reads the output instead of running the step again. `STEP.map(stage,
config, items)` runs it once for each of several items, side by side.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from importlib import import_module
from operator import itemgetter
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    get_type_hints,
    runtime_checkable,
)

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from earmark.schemas.reasons import CURRENT, Reject, current_word
from earmark.schemas.tables import REJECTS
from earmark.tasks.pipeline.progress import Work, working
from earmark.tasks.pipeline.sessions import forget_clips
from earmark.tasks.store.files import write_text
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.staging import Stage


def came_in(kept: Iterable[str], rejects: Iterable[tuple[str, Reject]]) -> Counter[str]:
    """Count the rows of each source file, from the files of kept rows and from rejects."""
    return Counter(kept) + Counter(reject.source_file for _, reject in rejects)


def rejects_table(stage: str, rejects: Iterable[tuple[str, Reject]]) -> pa.Table:
    """Return rejects as rows of the `rejects` table; `file` is null without a source file."""

    def things(reject: Reject) -> list[dict[str, str]]:
        return [{"kind": kind, "id": id_} for kind, id_ in reject.made_from]

    rows = [
        (table, one.item, stage, current_word(one.reason), one.detail, one.source_file or None, one.line, things(one))
        for table, one in rejects
    ]
    return pa.Table.from_pylist([dict(zip(REJECTS.schema.names, row, strict=True)) for row in rows], REJECTS.schema)


Config = TypeVar("Config")
Item = TypeVar("Item")
Output = TypeVar("Output")
Inputs = ParamSpec("Inputs")


@dataclass(frozen=True)
class Account:
    """Counts of the items that entered a step: `entered = kept + rejects + filtered`, checked at commit."""

    entered: int  # items in
    kept: int  # items out
    # refused items: rows of the table `rejects`, or rejects with the table that lacks them
    rejects: pa.Table | Sequence[tuple[str, Reject]] = ()
    filtered: Mapping[str, int] | None = None  # items left out by a rule or quota, by reason; counted, not listed
    # for steps that read or index inputs, items by file: `most_rejected` is a share of these
    sources: Mapping[str, int] | None = None
    notes: Sequence[str] = ()  # sentences for the reader
    # name, unit, follows, table: as in `step`, if one step gives several accounts; an account with its own name follows
    # nothing and fills no table by default
    name: str | None = None
    unit: str | None = None
    follows: str | tuple[str, ...] = ()
    table: str | None = None
    stage: str | None = None  # stage of its rejects; default its name


class Done(Generic[Output]):
    """Output of a step: small references for later steps (paths, counts), and its accounts."""

    def __init__(self, output: Output, *accounts: Account) -> None:
        self.output = output
        self.accounts = accounts


@runtime_checkable
class Closing(Protocol):
    """Input that changes until a finished step has read it: a walk's answers."""

    def close_walk(self) -> None:
        """Let a resumed build leave it as it is."""


class Enough(Exception):  # not an error
    """End of a dry run: nothing is asked after it."""


class BuildStep(Generic[Config, Inputs, Output]):
    """Declared step; see `step`. Pickled as its name."""

    __qualname__: str

    def __init__(
        self,
        function: Callable[Concatenate[Stage, Config, Inputs], Done[Output]],
        name: str,
        unit: str,
        follows: str | tuple[str, ...],
        table: str | None,
        label: str | None,
        final: bool,
    ) -> None:
        update_wrapper(self, function)
        self._function = function
        self.name = name
        self.unit = unit
        self.follows = follows
        self.table = table
        self.label = name.replace("-", " ") if label is None else label
        self.final = final

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return named, (self.__module__, self.__qualname__)

    def __call__(self, stage: Stage, config: Config, *inputs: Inputs.args, **named: Inputs.kwargs) -> Output:
        """Run the step, or return its output from an interrupted run of this build."""
        if self.final:
            if stage.forecast is not None:
                raise Enough
            forget_clips()
        if (text := stage.output(self.name)) is not None:
            return self._outputs.validate_json(text)
        if in_flow():
            from prefect import task
            from prefect.cache_policies import NO_CACHE

            output: Output = task(name=self.name, cache_policy=NO_CACHE)(run_step)(self, stage, config, inputs, named)
            return output
        return run_step(self, stage, config, inputs, named)

    def map(self, stage: Stage, config: Config, items: Sequence[Any], **inputs: Any) -> list[Output]:
        """Run the step for each item (the function's third argument), on the config's `[engine]`.

        Args:
            stage: the build.
            config: its config.
            items: each with a unique `name`; `rows`, if present, is its count in the progress.
            inputs: passed to each run.
        """
        return run_each(self.name, self.label, run_item, stage, config, items, step=self, inputs=inputs)

    def forget(self, stage: Stage) -> None:
        """Make a resumed build run the step, or all of its items, again."""
        for pattern in (f"{self.name}.output", f"{self.name}-*.output"):
            for path in (stage.folder / "steps").glob(pattern):
                path.unlink()

    def save(self, stage: Stage, done: Done[Output], name: str, place: int) -> Output:
        """Write rejects, then accounts, then the output, so that an existing output implies the rest."""
        for number, account in enumerate(done.accounts):
            own = account.name or name
            stage.write_rejects(own, self._rejects(account), account.sources)
            stage.record(self.entry(account, own, place + number))
        stage.keep_output(name, self._outputs.dump_json(done.output).decode())
        return done.output

    def entry(self, account: Account, name: str, place: int = 0) -> Step:
        """Return an account as a manifest entry; `place` is the step's place in the funnel."""
        follows = account.follows or (self.follows if account.name is None else ())
        reasons = self._rejects(account)["reason"].value_counts().to_pylist()
        return Step(
            name=name,
            place=place,
            unit=account.unit or self.unit,
            stage=account.stage or account.name or self.name,
            follows=(follows,) if isinstance(follows, str) and follows else tuple(follows),
            entered=account.entered,
            kept=account.kept,
            rejected={one["values"]: one["counts"] for one in sorted(reasons, key=itemgetter("values"))},
            dropped={reason: count for reason, count in (account.filtered or {}).items() if count},
            table=account.table or (self.table if account.name is None else None),
            notes=tuple(account.notes),
        )

    def _rejects(self, account: Account) -> pa.Table:
        rejects = account.rejects
        if not isinstance(rejects, pa.Table):
            return rejects_table(account.stage or account.name or self.name, rejects)
        words = rejects["reason"]
        for old in CURRENT.keys() & words.unique().to_pylist():
            words = pc.if_else(pc.equal(words, old), current_word(old), words)
        return rejects.set_column(rejects.schema.get_field_index("reason"), "reason", words)

    @cached_property
    def _outputs(self) -> TypeAdapter[Output]:
        module = vars(import_module(self.__module__))
        (kind,) = get_args(get_type_hints(self._function, module)["return"])
        return TypeAdapter(kind)


Declared: TypeAlias = Callable[Concatenate[Stage, Config, Inputs], Done[Output]]


def step(
    name: str, *, unit: str = "rows", follows: str | tuple[str, ...] = (), table: str | None = None,
    label: str | None = None, final: bool = False,
) -> Callable[[Declared[Config, Inputs, Output]], BuildStep[Config, Inputs, Output]]:  # fmt: skip
    """Declare a step.

    Args:
        name: the step, and the stage of its rejects; unique in a corpus.
        unit: counted items, such as "clips".
        follows: steps of the same unit whose kept items enter here.
        table: the published table whose rows are the kept items, if any.
        label: text of the progress; default the name, none if "".
        final: whether nothing is asked from here on: a dry run ends before it.
    """
    return lambda function: BuildStep(function, name, unit, follows, table, label, final)


def run_step(
    this: BuildStep[Any, Any, Output], stage: Stage, config: Any, inputs: tuple[Any, ...], named: dict[str, Any]
) -> Output:
    """Run a step, then close the walks that it has read: the body of its task."""
    with working(this.label) if this.label else nullcontext():
        done = this._function(stage, config, *inputs, **named)
    output = this.save(stage, done, this.name, next_place(stage, this.name))
    if stage.forecast is None:
        _close([*inputs, *named.values()])
    return output


def _close(inputs: Any) -> None:
    if isinstance(inputs, Closing):
        inputs.close_walk()
    elif isinstance(inputs, list | tuple | dict):
        for one in inputs.values() if isinstance(inputs, dict) else inputs:
            _close(one)


def run_item(
    step: BuildStep[Any, Any, Output], stage: Stage, config: Any, item: Any, place: int, inputs: dict[str, Any]
) -> Output:
    """Run one item of a mapped step: the body of its task."""
    name = f"{step.name}-{item.name}"
    if (text := stage.output(name)) is not None:
        return step._outputs.validate_json(text)
    return step.save(stage, step._function(stage, config, item, **inputs), name, place)


def run_each(
    name: str, label: str, run: Callable[..., Output], stage: Stage, config: Any, items: Sequence[Any], **inputs: Any
) -> list[Output]:
    """Run a function for each of several items: as mapped tasks inside a flow run, else one after the other.

    Args:
        name: the tasks' name; a task run adds the item's name.
        label: text of the progress; none if "".
        run: gets the stage, the config, an item as `item`, `place` in the funnel, and the inputs.
        stage, config, items: as `BuildStep.map`.
        inputs: passed to each run.
    """
    place = next_place(stage, name)
    total = sum(getattr(item, "rows", 1) for item in items)
    with working(label, total) if label else nullcontext() as work:
        if not in_flow():
            outputs = []
            for item in items:
                outputs.append(run(stage=stage, config=config, item=item, place=place, **inputs))
                advance(work, item)
            return outputs
        from prefect import task, unmapped
        from prefect.cache_policies import NO_CACHE

        made = task(name=name, task_run_name=name + "-{item.name}", cache_policy=NO_CACHE)(run_task)
        spread = {"place": place, **inputs}
        futures = made.map(
            unmapped(run), unmapped(stage), unmapped(config), list(items), unmapped(work), unmapped(spread)
        )
        return list(futures.result())


def run_task(run: Callable[..., Any], stage: Stage, config: Any, item: Any, progress: Work | None, inputs: Any) -> Any:
    """Run one item and advance the progress, which other processes do not see."""
    output = run(stage=stage, config=config, item=item, **inputs)
    advance(progress, item)
    return output


def advance(work: Work | None, item: Any) -> None:
    """Advance the progress by one item."""
    if work is not None:
        work.advance(getattr(item, "rows", 1))


def next_place(stage: Stage, name: str) -> int:
    """Return a step's place in the funnel: after all recorded steps; items of one step share a place.

    The place is saved, so that a step killed between two of its accounts keeps it.
    """
    path = stage.folder / "steps" / f"{name}.place"
    if not path.is_file():
        others = (one.place for one in stage.steps() if one.name != name and not one.name.startswith(f"{name}-"))
        write_text(path, str(1 + max(others, default=0)))
    return int(path.read_text("utf-8"))


def in_flow() -> bool:
    """Return whether a Prefect flow run is active here."""
    if "prefect" not in sys.modules:
        return False
    from prefect.context import FlowRunContext

    return FlowRunContext.get() is not None


def named(module: str, name: str) -> Any:
    """Return a module's attribute: the unpickler of declared steps in other processes."""
    return getattr(import_module(module), name)
