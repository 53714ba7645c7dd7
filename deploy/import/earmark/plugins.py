"""Names that plug-ins import: corpora, importers, backends and export formats of packages beside Earmark.

    from earmark.plugins import Account, Done, Stage, corpus_flow, step

A name keeps its meaning within a major release; other modules may change in any. Each name is loaded when it is first
used, so a declaration costs no import of Prefect. `flows/command/plugins.md` shows them.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from earmark.schemas.annotation import DECIDES as DECIDES
    from earmark.schemas.annotation import AnnotatorConfig as AnnotatorConfig
    from earmark.schemas.config import BuildConfig as BuildConfig
    from earmark.schemas.corpus import Beside as Beside
    from earmark.schemas.corpus import Corpus as Corpus
    from earmark.schemas.corpus import Start as Start
    from earmark.schemas.corpus import Story as Story
    from earmark.schemas.corpus import View as View
    from earmark.schemas.evaluations import Evaluation as Evaluation
    from earmark.schemas.places import without_place as without_place
    from earmark.schemas.questions import Json as Json
    from earmark.schemas.rating_sources import Source as Source
    from earmark.schemas.reasons import Reason as Reason
    from earmark.schemas.reasons import Reject as Reject
    from earmark.schemas.reasons import add_reasons as add_reasons
    from earmark.schemas.tables import REJECTS as REJECTS
    from earmark.schemas.tables import Column as Column
    from earmark.schemas.tables import Table as Table
    from earmark.schemas.tables import column as column
    from earmark.tasks.annotation.answers import Reply as Reply
    from earmark.tasks.annotation.backend import Backend as Backend
    from earmark.tasks.annotation.backend import Media as Media
    from earmark.tasks.annotation.backend import Provider as Provider
    from earmark.tasks.annotation.prompts import Prompt as Prompt
    from earmark.tasks.annotation.prompts import Untrusted as Untrusted
    from earmark.tasks.annotation.prompts import parse_prompt as parse_prompt
    from earmark.tasks.annotation.request import Request as Request
    from earmark.tasks.evaluation.kinds import Prediction as Prediction
    from earmark.tasks.evaluation.kinds import SampleKind as SampleKind
    from earmark.tasks.exports.formats import Format as Format
    from earmark.tasks.exports.shapes import plain as plain
    from earmark.tasks.importers.caption_sets import CaptionLayout as CaptionLayout
    from earmark.tasks.importers.lists import Found as Found
    from earmark.tasks.importers.lists import Imported as Imported
    from earmark.tasks.importers.lists import ListFile as ListFile
    from earmark.tasks.importers.lists import Rating as Rating
    from earmark.tasks.importers.lists import bare_rows as bare_rows
    from earmark.tasks.importers.lists import list_file as list_file
    from earmark.tasks.importers.lists import parsed as parsed
    from earmark.tasks.importers.lists import published as published
    from earmark.tasks.importers.tracks import TrackLayout as TrackLayout
    from earmark.tasks.importers.votes import VoteLayout as VoteLayout
    from earmark.tasks.pipeline.ask import Ask as Ask
    from earmark.tasks.pipeline.ask import Asker as Asker
    from earmark.tasks.pipeline.ask import Posed as Posed
    from earmark.tasks.pipeline.ask import Row as Row
    from earmark.tasks.pipeline.ask import Values as Values
    from earmark.tasks.pipeline.ask import pose as pose
    from earmark.tasks.pipeline.flow import corpus_flow as corpus_flow
    from earmark.tasks.pipeline.inputs import Input as Input
    from earmark.tasks.pipeline.inputs import file_digests as file_digests
    from earmark.tasks.pipeline.media import audio_digest as audio_digest
    from earmark.tasks.pipeline.plan import Plan as Plan
    from earmark.tasks.pipeline.plan import make_plan as make_plan
    from earmark.tasks.pipeline.rows import Rows as Rows
    from earmark.tasks.pipeline.rows import keep_rows as keep_rows
    from earmark.tasks.pipeline.rows import read_rows as read_rows
    from earmark.tasks.pipeline.step import Account as Account
    from earmark.tasks.pipeline.step import Done as Done
    from earmark.tasks.pipeline.step import step as step
    from earmark.tasks.pipeline.walk import Walked as Walked
    from earmark.tasks.pipeline.walk import walk as walk
    from earmark.tasks.store.staging import Stage as Stage
    from earmark.tasks.store.versions import Store as Store
    from earmark.tasks.store.versions import Version as Version

_MODULES = {
    alias.name: node.module
    for node in ast.walk(ast.parse(Path(__file__).read_text("utf-8")))  # the imports above, read and not run
    if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("earmark.")
    for alias in node.names
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'earmark.plugins' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
