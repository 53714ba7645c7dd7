"""Ask a model for a text about each of several pictures."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from earmark.schemas.evaluations import Examinee
from earmark.schemas.questions import FreeText, Image
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.prompts import prompt_named
from earmark.tasks.annotation.request import Unanswered
from earmark.tasks.pipeline.sessions import open_session
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.versions import Store


class Transcription(NamedTuple):
    """A model's text about a picture."""

    text: str | None  # None without an answer
    fault: str | None  # why there is none
    request_key: str


def transcribe(
    store: Store, config: Examinee, prompt: str, pictures: Mapping[str, Path]
) -> tuple[dict[str, Transcription], float]:
    """Return the text about each PNG, by the picture's name, and the cost in US dollars.

    Args:
        prompt: the name of a prompt that shows `score_image`.
    """
    words = prompt_named(prompt)
    requests = [
        question(config, words.render(score_image=Image(sha256_file(path), str(path), "image/png")), FreeText())
        for path in pictures.values()
    ]
    with open_session(store, config) as session:
        outcomes = session.ask(requests).outcomes
        spent = session.spent_usd
    found = {}
    for name, request, outcome in zip(pictures, requests, outcomes, strict=True):
        if isinstance(outcome, Unanswered):
            found[name] = Transcription(None, f"{outcome.reason}: {outcome.detail}", request.key)
        else:
            found[name] = Transcription(str(outcome.value), None, request.key)
    return found, spent
