"""Detect the language of a text."""

import py3langid


def language_of(text: str) -> str | None:
    """Return the ISO 639-1 code of a text's language, by py3langid's model of 97 languages, or None. Chord symbols and
    numbers have no language. Short texts (below about five words) may be misclassified."""
    code = py3langid.classify(text)[0]
    return code if len(code) == 2 else None
