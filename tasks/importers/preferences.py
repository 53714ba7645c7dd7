"""Register the layouts of votes and of rated music, `votes.<format>` among the entry points `earmark.importers`."""

from __future__ import annotations

from earmark.schemas.registry import Registry, registered
from earmark.tasks.importers.votes import VoteLayout

VOTE_LAYOUTS = Registry(
    "layout of votes",
    "earmark.importers",
    VoteLayout,
    registered("earmark.tasks.importers"),
    "votes.",
)
