"""Presidio's pattern recognisers over a blank pipeline of spaCy: what a well-known library finds in the same cases."""

from __future__ import annotations

from collections.abc import Callable

from tests.text.cases import CASES, MUSIC, Case, Measure


def presidio_measures() -> list[Measure]:
    """What it misses of what our search looks for, and where it finds something in music.

    Raises:
        ImportError: it is not installed.
    """
    find = _finder()
    searched = [case for case in CASES if case.leaks]

    def misses(case: Case) -> bool:
        places = find(case.text)
        return any(not any(a < end and start < b for a, b, _ in places) for start, end in case.spans)

    def stops(case: Case) -> bool:
        return bool(find(case.text))

    return [Measure("Presidio misses", searched, misses), Measure("Presidio stops music", MUSIC, stops)]


def _finder() -> Callable[[str], list[tuple[int, int, str]]]:
    import spacy
    import tldextract
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.nlp_engine import SpacyNlpEngine

    class Blank(SpacyNlpEngine):
        """Words and nothing else: no model is loaded."""

        def load(self) -> None:
            self.nlp = {"en": spacy.blank("en")}

    offline = tldextract.TLDExtract(suffix_list_urls=())
    tldextract.extract = offline  # it looks for a newer list on the network
    registry = RecognizerRegistry(supported_languages=["en"])
    registry.load_predefined_recognizers(languages=["en"])
    engine = Blank(models=[{"lang_code": "en", "model_name": "blank"}])
    engine.load()
    analyzer = AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=["en"])
    left_out = ("DATE_TIME", "URL")  # dates are no person's, and our search lets links pass

    def find(text: str) -> list[tuple[int, int, str]]:
        found = analyzer.analyze(text, "en")
        return [(each.start, each.end, each.entity_type) for each in found if each.entity_type not in left_out]

    return find
