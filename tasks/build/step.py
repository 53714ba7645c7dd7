"""A step of a corpus, declared once; run, skipped, counted and shown by this module.

    @step("select", unit="clips", follows="index")
    def select_clips(stage: Stage, config: Captions, index: Rows) -> Done[Rows]:
        ...
        return Done(selected, Account(entered=index.count, kept=selected.count, rejects=rejects))

Called inside a flow run, a step is a Prefect task; called elsewhere (a dry run, a test), it is a plain function. Either
way its rejects and accounts are written, then what it returned, so that a resumed build takes that and does not run it
again. `STEP.map(stage, config, items)` runs it once for each of several items, side by side.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from importlib import import_module
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, get_args, get_type_hints

import pyarrow as pa
from pydantic import TypeAdapter

from earmark.tasks.build.progress import Work, working
from earmark.tasks.build.rejects import rejects_table
from earmark.tasks.build.sessions import forget_clips
from earmark.tasks.importers.rows import Reject
from earmark.tasks.store.files import write_text
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.staging import Stage

Config = TypeVar("Config")
Item = TypeVar("Item")
Output = TypeVar("Output")
Inputs = ParamSpec("Inputs")


@dataclass(frozen=True)
class Account:
    """What became of the items that entered a step: `entered = kept + rejects + filtered`, which the commit checks."""

    entered: int  # how many came in
    kept: int  # how many go on
    # those that do not: rows of the table `rejects`, or rejects with the table that lacks them
    rejects: pa.Table | Sequence[tuple[str, Reject]] = ()
    filtered: Mapping[str, int] | None = None  # how many a rule or a quota left out, by reason; counted, not listed
    # of a step that reads or indexes inputs, how many items came in by file: `most_rejected` holds faults against them
    sources: Mapping[str, int] | None = None
    notes: Sequence[str] = ()  # sentences for the reader
    # name, unit, follows, table: as `step` has them, where one step gives several accounts; an account with a name of
    # its own follows nothing, and fills no table, unless it says so
    name: str | None = None
    unit: str | None = None
    follows: str | tuple[str, ...] = ()
    table: str | None = None
    stage: str | None = None  # the word under which its rejects stand, if it is not its name


class Done(Generic[Output]):
    """What a step leaves: small references for the steps after it (paths, counts), and its accounts."""

    def __init__(self, output: Output, *accounts: Account) -> None:
        self.output = output
        self.accounts = accounts


class Enough(Exception):  # not an error
    """Ends a dry run: nothing is asked from here on."""


class BuildStep(Generic[Config, Inputs, Output]):
    """A declared step; see `step`. Travels to other processes as its name."""

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
        """Run the step, or give what an interrupted run of this build left of it."""
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
        """Run the step for each item (the function's third argument), where `[engine]` of the config says.

        Args:
            stage: the build.
            config: its config.
            items: each with a `name`, unique among them; one with `rows` counts as so many in the progress.
            inputs: handed to all.
        """
        return run_each(self.name, self.label, run_item, stage, config, items, step=self, inputs=inputs)

    def forget(self, stage: Stage) -> None:
        """Have the step, or all of its items, run again when this build is resumed."""
        for pattern in (f"{self.name}.output", f"{self.name}-*.output"):
            for path in (stage.folder / "steps").glob(pattern):
                path.unlink()

    def save(self, stage: Stage, done: Done[Output], name: str, place: int) -> Output:
        """Write rejects, then accounts, then the output: whoever finds the output finds all."""
        for number, account in enumerate(done.accounts):
            own = account.name or name
            stage.write_rejects(own, self._rejects(account), account.sources)
            stage.record(self.entry(account, own, place + number))
        stage.keep_output(name, self._outputs.dump_json(done.output).decode())
        return done.output

    def entry(self, account: Account, name: str, place: int = 0) -> Step:
        """An account as the manifest has it; `place` is where the step stands in the funnel."""
        follows = account.follows or (self.follows if account.name is None else ())
        return Step(
            name=name,
            place=place,
            unit=account.unit or self.unit,
            stage=account.stage or account.name or self.name,
            follows=(follows,) if isinstance(follows, str) and follows else tuple(follows),
            entered=account.entered,
            kept=account.kept,
            rejected=dict(sorted(Counter(self._rejects(account)["reason"].to_pylist()).items())),
            dropped={reason: count for reason, count in (account.filtered or {}).items() if count},
            table=account.table or (self.table if account.name is None else None),
            notes=tuple(account.notes),
        )

    def _rejects(self, account: Account) -> pa.Table:
        rejects = account.rejects
        if not isinstance(rejects, pa.Table):
            rejects = rejects_table(account.stage or account.name or self.name, rejects)
        return rejects

    @cached_property
    def _outputs(self) -> TypeAdapter[Output]:
        """Reads and writes what the step returns, by its annotation `Done[...]`."""
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
        name: the step, and the stage under which its rejects stand; unique in a corpus.
        unit: what it counts, such as "clips".
        follows: steps of the same unit whose kept items enter here.
        table: the published table whose rows are the kept items, if there is one.
        label: what the progress says; the name without one, and nothing for "".
        final: whether nothing is asked from here on: a dry run ends before it.
    """
    return lambda function: BuildStep(function, name, unit, follows, table, label, final)


def run_step(
    this: BuildStep[Any, Any, Output], stage: Stage, config: Any, inputs: tuple[Any, ...], named: dict[str, Any]
) -> Output:
    """What the task of a step runs."""
    with working(this.label) if this.label else nullcontext():
        done = this._function(stage, config, *inputs, **named)
    return this.save(stage, done, this.name, next_place(stage, this.name))


def run_item(
    step: BuildStep[Any, Any, Output], stage: Stage, config: Any, item: Any, place: int, inputs: dict[str, Any]
) -> Output:
    """What the task of one item of a mapped step runs."""
    name = f"{step.name}-{item.name}"
    if (text := stage.output(name)) is not None:
        return step._outputs.validate_json(text)
    return step.save(stage, step._function(stage, config, item, **inputs), name, place)


def run_each(
    name: str, label: str, run: Callable[..., Output], stage: Stage, config: Any, items: Sequence[Any], **inputs: Any
) -> list[Output]:
    """Run a function for each of several items: as mapped tasks inside a flow run, else one after the other.

    Args:
        name: the tasks' name; a task's run adds the item's name.
        label: what the progress says; nothing for "".
        run: gets the stage, the config, an item as `item`, `place` in the funnel, and the inputs.
        stage, config, items: as `BuildStep.map`.
        inputs: handed to all.
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
    """One item's task; it advances the progress, which no other process sees."""
    output = run(stage=stage, config=config, item=item, **inputs)
    advance(progress, item)
    return output


def advance(work: Work | None, item: Any) -> None:
    """Note that an item is done."""
    if work is not None:
        work.advance(getattr(item, "rows", 1))


def next_place(stage: Stage, name: str) -> int:
    """Where a step stands in the funnel: after all that were recorded before it; items of one step share a place.

    It is noted, so that a step which was killed between two of its accounts keeps its place.
    """
    path = stage.folder / "steps" / f"{name}.place"
    if not path.is_file():
        others = (one.place for one in stage.steps() if one.name != name and not one.name.startswith(f"{name}-"))
        write_text(path, str(1 + max(others, default=0)))
    return int(path.read_text("utf-8"))


def in_flow() -> bool:
    """Whether this is called inside a run of a Prefect flow."""
    if "prefect" not in sys.modules:
        return False
    from prefect.context import FlowRunContext

    return FlowRunContext.get() is not None


def named(module: str, name: str) -> Any:
    """What a module has under a name: how declared steps reach other processes."""
    return getattr(import_module(module), name)
