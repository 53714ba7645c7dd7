"""Register the layouts of votes and of rated music, `votes.<format>` among the entry points `earmark.importers`."""

from __future__ import annotations

from earmark.schemas.registry import Registry
from earmark.tasks.importers import cmi_pref, label_studio, music_arena, rated_music, votes
from earmark.tasks.importers.votes import VoteLayout

VOTE_LAYOUTS = Registry(
    "layout of votes",
    "earmark.importers",
    VoteLayout,
    {
        "cmi-pref": cmi_pref.LAYOUT,
        "music-arena": music_arena.LAYOUT,
        "music-arena-battles": music_arena.BATTLES,
        "label-studio": label_studio.LAYOUT,
        "votes": votes.LAYOUT,
        "musiceval": rated_music.MUSICEVAL,
        "pam": rated_music.PAM,
    },
    prefix="votes.",
)
