"""Check that the fields of an answer hold an answer."""

from earmark.tasks.pipeline.ask import Fault
from earmark.tasks.text.refusals import count_words, find_refusal

LEAST_WORDS = 2  # "N/A", "-" and "TODO" say nothing


def refusal_fault(text: str, *, of_image: bool = False) -> Fault | None:
    """Return the fault of a text in which a model refuses to answer."""
    found = find_refusal(text, of_image=of_image)
    return Fault("refused", f"expected an answer, found {found[:40]!r}") if found else None


def says_something(text: str) -> bool:
    """Return whether a text has words enough to say something."""
    return count_words(text) >= LEAST_WORDS
