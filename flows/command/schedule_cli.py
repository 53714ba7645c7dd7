"""Implement `earmark schedule`: run a config's build at set times."""

import os
import shlex
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from earmark.flows.command.options import JsonOption, KeepOption, StoreOption, open_store, option, print_json

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule, as `earmark schedule list` shows it.")]


class _AddByDefault(TyperGroup):
    """Take a file in a command's place for the file to schedule."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put `add` before arguments that begin with no command; a misspelt one is none of a file and times."""
        timed = any(one.partition("=")[0] == "--cron" for one in args)
        named = args and (args[0] in self.commands or not (timed or Path(args[0]).suffix))
        return super().resolve_command(ctx, args if named else ["add", *args])


app = typer.Typer(
    cls=_AddByDefault,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Run a config's build at set times, where `earmark serve` or another worker of Prefect runs.

**Examples:**

`earmark schedule my.toml --cron "0 3 * * *"`

`earmark schedule my.toml --cron "0 3 * * 1" --publish my-lab/mos --secret HF_TOKEN=hf-token`

`earmark schedule list`
""",
)


@app.command("add")
def add(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A build config, or the config of a rebuild.")],
    cron: Annotated[str, option("EXPRESSION", 'Minute, hour, day, month, weekday, such as "0 3 * * *".')],
    timezone: Annotated[str, option("ZONE", "The time zone of --cron, such as Europe/Berlin.")] = "UTC",
    name: Annotated[str | None, option("NAME", "The schedule's name. Default: from the file and the corpus.")] = None,
    publish: Annotated[str | None, option("ORG/NAME", "Publish new versions to this repository.")] = None,
    private: Annotated[bool, option("--private", "Publish to a private repository only.")] = False,
    secret: Annotated[
        list[str] | None, option("VARIABLE=BLOCK", "Fill a variable of the runs from a Secret block of Prefect.")
    ] = None,
    store: StoreOption = None,
    keep: KeepOption = True,
    as_json: JsonOption = False,
) -> None:
    """Schedule a config (the word `add` may be left out); replace its earlier schedule in the same store.

    Each run reads the build config anew, builds if something changed, and publishes if told to. A gate and views stand
    in the config of a rebuild.

    **Example:** `earmark schedule my.toml --cron "0 3 * * *" --publish my-lab/mos`
    """
    from earmark.flows.command import console, schedules
    from earmark.schemas.errors import ConfigError
    from earmark.schemas.rebuild import Publication
    from earmark.tasks.store.hub import Repo

    if private and not publish:
        raise ConfigError("--private needs --publish ORG/NAME")
    publication = Publication(repo=Repo(publish).name, private=private) if publish else None
    own_server = "PREFECT_API_URL" not in os.environ
    place, environment = open_store(store), schedules.secrets_of(secret or [])
    config = schedules.rebuild_of(file, publication, place)
    full, next_run = schedules.add(config, name or schedules.name_of(file, config), cron, timezone, place, environment)
    if as_json:
        print_json({"name": full, "next_run": next_run, "store": place.absolute().address})
        return
    console.tell(f"{full}: next run {_at(next_run)}; results go to {place.absolute().address}")
    if own_server:
        outside = not config.base.is_relative_to(Path.cwd())
        roots = (
            f"EARMARK_ROOTS={shlex.quote(f'{config.base}{os.pathsep}{Path.cwd()}')} "
            if outside and not os.environ.get("EARMARK_ROOTS")
            else ""
        )
        console.tell(f"it runs while `{roots}earmark serve` runs on this machine")


def _at(moment: datetime | None) -> str:
    """Return a time to the minute in this machine's time zone."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M %Z}" if moment else "–"


@app.command("list")
def show(keep: KeepOption = True, as_json: JsonOption = False) -> None:
    """List the schedules, their next runs and how the newest run ended.

    **Example:** `earmark schedule list`
    """
    from earmark.flows.command import console, schedules

    found = schedules.schedules()
    if as_json:
        print_json([asdict(one) for one in found])
    elif not found:
        console.tell('no schedules; add one with: earmark schedule FILE --cron "0 3 * * *"')
    else:
        rows = [
            (
                *(one.name, one.when, _at(one.next_run) if one.active else "paused"),
                *(one.last_state or "–", one.publishes or "–"),
            )
            for one in found
        ]
        console.print_table("schedule", "when", "next run", "newest run", "publishes to", rows=rows)


@app.command()
def pause(name: NameArgument, keep: KeepOption = True) -> None:
    """Pause a schedule; `earmark schedule resume` continues it.

    **Example:** `earmark schedule pause mos-preferences-my`
    """
    from earmark.flows.command import console, schedules

    schedules.pause(name, True)
    console.tell(f"{name}: paused; continue with: earmark schedule resume {name}")


@app.command()
def resume(name: NameArgument, keep: KeepOption = True) -> None:
    """Resume a paused schedule.

    **Example:** `earmark schedule resume mos-preferences-my`
    """
    from earmark.flows.command import console, schedules

    schedules.pause(name, False)
    console.tell(f"{name}: active again")


@app.command()
def remove(name: NameArgument, keep: KeepOption = True) -> None:
    """Remove a schedule. Its runs and versions stay.

    **Example:** `earmark schedule remove mos-preferences-my`
    """
    from earmark.flows.command import console, schedules

    schedules.remove(name)
    console.tell(f"{name}: removed")
