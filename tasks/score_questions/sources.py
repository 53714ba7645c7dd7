"""Plan `score-questions` builds and digest their inputs, without Prefect."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from earmark.schemas.files import Root, source_root
from earmark.schemas.places import without_place
from earmark.schemas.score_questions import CORPUS, ScoreQuestions
from earmark.tasks.pipeline.inputs import Input, require_folder, salt_input
from earmark.tasks.pipeline.mirror import bring_folder
from earmark.tasks.pipeline.plan import Plan, make_plan
from earmark.tasks.score_questions.examples import examples_of
from earmark.tasks.score_questions.forum.lines import first_objects
from earmark.tasks.score_questions.reviews import read_reviews
from earmark.tasks.score_questions.writing import ASKS
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.versions import Store


def plan_build(config: ScoreQuestions, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """Plan a version from its inputs; report whether there is anything to build."""
    return make_plan(CORPUS, config, store, inputs=inputs, asks=ASKS)


def inputs(config: ScoreQuestions) -> Iterator[Input]:
    """Yield the dump and review files, labelled examples, images, transcripts, the detector's model and the salt."""
    for kind, written in (("submissions", config.source.submissions), ("comments", config.source.comments)):
        for file in written:
            path, name = config.path(file), without_place(file)
            yield _list_input(name, path, partial(first_objects, path, name, kind))
    for file in config.review:
        path, name = config.path(file), without_place(file)
        yield _list_input(name, path, partial(read_reviews, path, name), may_be_empty=True)
    for label, examples in config.examples().items():
        if examples is not None:
            yield _list_input(f"{label}.examples", config.path(examples), partial(examples_of, config, label))
    if config.images is not None:
        root = source_root(config.path(config.images))
        yield _folder_input("images", root.folder, lambda: {"images": _images_digest(root)})
    if config.transcripts is not None:
        folder = config.path(config.transcripts)
        yield _folder_input("transcripts", folder, lambda: {"transcripts": _folder_digest(folder)})
    model = config.path(config.detector.model)
    if model.exists():
        digest = _folder_digest if model.is_dir() else sha256_file
        yield Input(name="detector.model", more=lambda store: {"detector": digest(model)})
    yield salt_input()


def _list_input(name: str, path: Path, read: Callable[[], Iterable[Any]], *, may_be_empty: bool = False) -> Input:
    return Input(name=name, files=lambda: [(name, path, None)], read=read, may_be_empty=may_be_empty)


def _folder_input(option: str, folder: Path, digest: Callable[[], dict[str, str]]) -> Input:
    def more(store: Store) -> dict[str, str]:
        bring_folder(folder)
        require_folder(option, folder)
        return digest()

    return Input(name=option, read=partial(require_folder, option, folder), more=more)


def _images_digest(root: Root) -> str:
    """Digest a folder and its direct subfolders, the places searched by `images_in`."""
    folder = root.folder
    inside = [file for path in folder.iterdir() for file in (path.iterdir() if path.is_dir() else (path,))]
    return digest_of([[str(path.relative_to(folder)), _state(path, root)] for path in sorted(inside)])


def _state(path: Path, root: Root) -> str:
    if root.leads_out(path):
        return "outside"
    return sha256_file(path) if path.is_file() else "no file"


def _folder_digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return digest_of([[str(path.relative_to(folder)), sha256_file(path)] for path in files])
