"""Plan `score-questions` builds and digest their inputs, without Prefect."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from earmark.schemas.files import Root
from earmark.schemas.places import without_place
from earmark.schemas.score_questions import CORPUS, ScoreQuestions
from earmark.tasks.pipeline.fingerprint import file_digests
from earmark.tasks.pipeline.mirror import bring_folder
from earmark.tasks.pipeline.plan import Plan, make_plan
from earmark.tasks.pipeline.preflight import Peek, require_folder
from earmark.tasks.pipeline.progress import working
from earmark.tasks.score_questions.examples import examples_of
from earmark.tasks.score_questions.forum.lines import first_objects
from earmark.tasks.score_questions.reviews import read_reviews
from earmark.tasks.score_questions.writing import ASKS
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.versions import Store
from earmark.tasks.text.anonymity import salt_digest, salt_of


def plan_build(config: ScoreQuestions, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """Plan a version from its inputs; report whether there is anything to build."""
    digest = partial(digest_inputs, config, store)
    return make_plan(CORPUS, config, store, digest, inputs=inputs, asks=ASKS)


def digest_inputs(config: ScoreQuestions, store: Store) -> dict[str, str]:
    """Return the SHA-256 of dump and review files, of images and detector model if present; and the salt's digest.

    Raises:
        InputError: a file or folder is missing or cannot be read.
    """
    source = config.source
    written = [*source.submissions, *source.comments, *config.review.files]
    with working("hash inputs", len(written)):
        digests = file_digests((without_place(name), config.path(name)) for name in written)
        if config.images.folder is not None:
            bring_folder(folder := config.path(config.images.folder))
            require_folder("images.folder", folder)
            digests["images"] = _images_digest(folder, Root(folder, config.images.links))
        examples = [(f"{label}.examples", name) for label, name in config.examples().items() if name is not None]
        digests |= file_digests((label, config.path(name)) for label, name in examples)
        if (model := config.path(config.detector.model)).is_dir():
            digests["detector"] = _folder_digest(model)
        elif model.is_file():
            digests["detector"] = sha256_file(model)
    if config.transcripts is not None:
        bring_folder(folder := config.path(config.transcripts))
        require_folder("transcripts", folder)
        digests["transcripts"] = _folder_digest(folder)
    return {**digests, "salt": salt_digest(salt_of(source.salt_env, store.root))}


def peeks(config: ScoreQuestions) -> Iterator[Peek]:
    """Return the inputs read before a build starts: the dump's first lines, the folder of images, the review files."""
    for kind, files in (("submissions", config.source.submissions), ("comments", config.source.comments)):
        for written in files:
            path, name = config.path(written), without_place(written)
            yield Peek(name, partial(first_objects, path, name, kind), lists=(path,))
    for written in config.review.files:
        path, name = config.path(written), without_place(written)
        yield Peek(name, partial(read_reviews, path, name), lists=(path,), may_be_empty=True)
    for label, examples in config.examples().items():
        if examples is not None:
            yield Peek(f"{label}.examples", partial(examples_of, config, label), lists=(config.path(examples),))
    if config.images.folder is not None:
        yield Peek("images.folder", partial(require_folder, "images.folder", config.path(config.images.folder)))


def _images_digest(folder: Path, root: Root) -> str:
    """Digest a folder and its direct subfolders, the places searched by `images_in`."""
    inside = [file for path in folder.iterdir() for file in (path.iterdir() if path.is_dir() else (path,))]
    return digest_of([[str(path.relative_to(folder)), _state(path, root)] for path in sorted(inside)])


def _state(path: Path, root: Root) -> str:
    if root.leads_out(path):
        return "outside"
    return sha256_file(path) if path.is_file() else "no file"


def _folder_digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return digest_of([[str(path.relative_to(folder)), sha256_file(path)] for path in files])
