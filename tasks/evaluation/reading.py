"""Files of scores, a row a sample or a clip: measured as a model's answers are; templates of such files."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import InputError
from earmark.schemas.evaluations import Evaluation
from earmark.tasks.evaluation.clip_scores import clip_predictions, read_clip_scores
from earmark.tasks.evaluation.recording import choose_threshold, record
from earmark.tasks.evaluation.samples import NoSamples, Wish, find_evaluation, select_samples
from earmark.tasks.evaluation.scores import order_of, read_scores, require_form
from earmark.tasks.evaluation.templates import clips_of, write_clips_template, write_samples_template
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.versions import Store, Version


def read(
    version: Version, corpus: Corpus, store: Store, path: Path, wish: Wish, out: Path | None
) -> tuple[dict[str, Any], Path]:
    """The same table from a file of scores.

    Raises:
        InputError: as `read_scores`.
    """
    evaluation = find_evaluation(corpus, wish.evaluation)
    with select_samples(version, corpus, evaluation, wish.part) as samples:
        threshold = choose_threshold(samples, wish, partial(read_scores, path))
        return record(store, samples, wish, read_scores(path, samples), _file(path, evaluation), out, threshold)


def read_clips(
    version: Version, corpus: Corpus, store: Store, path: Path, wish: Wish, out: Path | None
) -> tuple[list[tuple[dict[str, Any], Path]], list[str]]:
    """The tables of every scalar and preference evaluation that a file of clips' scores feeds.

    Returns:
        Facts and folder of each; and the evaluations that the file says nothing of.

    Raises:
        StoreError: the evaluation, or every one of the corpus, asks for more than a number a clip.
        InputError: as `read_clip_scores` and `clip_predictions`.
    """
    evaluations = _of_clips(corpus, wish)
    scores = read_clip_scores(path, {one.dimension for one in corpus.evaluations if one.clips})
    tables, without = [], []
    for evaluation in evaluations:
        try:
            with select_samples(version, corpus, evaluation, wish.part) as samples:
                result = clip_predictions(scores, samples)
                if result is None:
                    without.append(evaluation.name)
                    continue
                predictions, most = result
                facts = {**_file(path, evaluation), "per_clip": True}
                if most is not None:
                    facts["reachable"] = {"accuracy": most.met / samples.count, "exact": most.exact}
                place = out / evaluation.name if out and len(evaluations) > 1 else out
                tables.append(record(store, samples, wish, predictions, facts, place))
        except NoSamples:
            if wish.evaluation is not None:
                raise
            without.append(evaluation.name)
    if not tables:
        raise InputError(f"{path}: no clip of {', '.join(without)} is in it")
    return tables, without


def write_template(version: Version, corpus: Corpus, path: Path, wish: Wish) -> tuple[int, str]:
    """Write the rows of a file of scores: of clips, or of samples where an evaluation is named or none is of clips.

    Returns:
        How many rows, and the option that reads the file.

    Raises:
        InputError: the file exists, or has an ending that is none of a table.
        StoreError: no such evaluation, or no samples.
    """
    if wish.evaluation is None and any(one.clips for one in corpus.evaluations):
        clips = []
        for evaluation in _of_clips(corpus, wish):
            with suppress(NoSamples), select_samples(version, corpus, evaluation, wish.part) as samples:
                clips.append((evaluation, clips_of(samples)))
        if not clips:
            raise NoSamples(f"{version.corpus}@{version.name} has no sample of any evaluation")
        return write_clips_template(path, clips), "--clip-scores"
    evaluation = find_evaluation(corpus, wish.evaluation)
    with select_samples(version, corpus, evaluation, wish.part) as samples:
        return write_samples_template(path, samples), "--scores"


def _of_clips(corpus: Corpus, wish: Wish) -> list[Evaluation]:
    """The evaluation that is named, or all that scores of clips can feed."""
    if wish.evaluation is not None or not any(one.clips for one in corpus.evaluations):
        only = find_evaluation(corpus, wish.evaluation)
        require_form(only)
        return [only]
    return [one for one in corpus.evaluations if one.clips and not one.beside]


def _file(path: Path, evaluation: Evaluation) -> dict[str, Any]:
    """The facts of a file of scores."""
    facts = {"mode": None, "annotator": None, "scores": path.name, "scores_sha256": sha256_file(path)}
    return facts | ({"order": order_of(evaluation)} if evaluation.kind == "preference" else {})
