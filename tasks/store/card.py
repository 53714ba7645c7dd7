"""Render the dataset card, `README.md`, from the manifest, the schemas and the corpus's texts."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import yaml

from earmark.schemas.config import Licence
from earmark.schemas.corpus import Story
from earmark.schemas.tables import SPLITS, Table, embeds
from earmark.tasks.store.diff import Change
from earmark.tasks.store.licences import names_of, sources_of, stated_in
from earmark.tasks.store.manifest import Manifest, Step, digest_of

CITATION = Path(__file__).resolve().parents[2] / "CITATION.cff"  # in a clone, and in the wheel's package
PERSONAL = (
    "Earmark adds no names or contact data. Speaker, listener and artist ids, transcripts, lyrics and voices in the "
    "audio are those of the sources; their owners' terms hold."
)
MAY = {"all": "rows and audio", "rows": "rows, not audio", "none": "nothing"}
_LICENCES = re.compile(r"^## Licences\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
_HEADINGS = re.compile(r"^(?=## )", re.MULTILINE)
# sections before the tables that are no corpus's own: how a version was made, and what publications add
_ACCOUNTS = ("## How it was made\n", "## Models and prompts\n", "## Held back\n", "## Evaluations\n", "## Views\n")
SIZES = (
    (10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B"), (10**11, "10B<n<100B"), (10**12, "100B<n<1T"),
)  # fmt: skip


def render_card(
    manifest: Manifest,
    tables: Sequence[Table],
    story: Story,
    before: Manifest | None,
    sections: Mapping[str, str],
    changes: Sequence[Change] = (),
    hides_places: bool = False,
) -> str:
    """Return the card's text.

    Args:
        sections: further sections, Markdown by heading.
        changes: differences from the previous version, by table and split.
        hides_places: whether rejects name their source alone.
    """
    return _template().render(
        head=yaml.safe_dump(_head(manifest, tables, story), sort_keys=False, allow_unicode=True),
        manifest=manifest,
        tables=[table for table in tables if table.name in manifest.rows],
        story=story,
        before=before,
        sections=sections,
        changes=[change for change in changes if change.added or change.removed or change.changed],
        diagram=diagram(manifest.steps),
        licences=_licences_section(stated_in(manifest.config)),
        personal=PERSONAL,
        all_splits=split_order(list({split for splits in manifest.rows.values() for split in splits})),
        fields=_fields,
        sounds=[(t.name, f.name) for t in tables if t.name in manifest.rows for f in t.schema if embeds(f) == "Audio"],
        hides_places=hides_places,
        citations=citations(story.references),
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["cell"] = markdown_cell
    return environment.from_string(resources.files("earmark.tasks.store").joinpath("card.md.j2").read_text("utf-8"))


def citations(references: Iterable[str]) -> list[str]:
    """Return BibTeX of the papers of CITATION.cff whose abbreviations begin these references."""
    known = {paper["abbreviation"]: paper for paper in yaml.safe_load(CITATION.read_text("utf-8"))["references"]}
    return [_bibtex(known[name]) for line in references if (name := line.partition(":")[0]) in known]


def _bibtex(paper: Mapping[str, Any]) -> str:
    name = re.sub(r"[^a-z0-9]", "", paper["abbreviation"].lower())
    authors = " and ".join(f"{one['family-names']}, {one['given-names']}" for one in paper["authors"])
    fields = {
        "title": f"{{{paper['title']}}}",
        "author": authors,
        "year": paper["year"],
        "eprint": paper["url"].removeprefix("https://arxiv.org/abs/"),
        "archivePrefix": "arXiv",
        "url": paper["url"],
    }
    lines = [f"  {field} = {{{value}}}," for field, value in fields.items()]
    return "\n".join([f"@misc{{{name}{paper['year']},", *lines, "}"])


def diagram(steps: Sequence[Step]) -> str:
    """Return the flow as text: a line for each step, an arrow between successive groups."""
    lines: list[str] = []
    width = max((len(step.name) for step in steps), default=0)
    for step, previous in zip(steps, [None, *steps], strict=False):
        if previous is not None and step.place != previous.place:
            lines.append("  ↓")
        lost = sum(step.rejected.values()) + sum(step.dropped.values())
        told = f"{step.name:<{width}}  {step.entered:,} {step.unit} → {step.kept:,}"
        told += f" ({lost:,} left out)" if lost else ""
        lines.append(" ".join(f"{told}{f' ⇒ table {step.table}' if step.table else ''}".replace("`", "'").split("\n")))
    return "\n".join(lines)


def split_order(names: Sequence[str]) -> list[str]:
    """Return split names in the usual order."""
    return sorted(names, key=lambda name: (SPLITS.index(name) if name in SPLITS else len(SPLITS), name))


def markdown_cell(value: Any) -> str:
    """Return a value as text for one cell of a Markdown table: pipes, line breaks and markup have no effect."""
    return " ".join(re.sub(r"([\\|`*_\[\]<>])", r"\\\1", str(value)).split())


def content_mark(digests: Iterable[str]) -> str:
    """Return a config's `description` in the YAML of a local dataset; it changes with the files' content.

    `datasets` caches a local folder by the folder's name and this YAML alone, neither by its path nor by its files.
    Without the mark, the `v1` of another store would be returned for this one.
    """
    return f"content {digest_of(list(digests))[:16]}"


def _head(manifest: Manifest, tables: Sequence[Table], story: Story) -> dict[str, Any]:
    configs = [
        {
            "config_name": table.name,
            "description": content_mark(entry.sha256 for entry in manifest.files if entry.table == table.name),
            **({"default": True} if table.name == story.main_table else {}),
            "data_files": [
                {"split": split, "path": f"{table.name}/{split}-*.parquet"}
                for split in split_order([name for name, rows in manifest.rows[table.name].items() if rows])
            ],
        }
        for table in tables
        if any(manifest.rows.get(table.name, {}).values())  # `datasets` reads no split without rows
    ]
    creators = [*story.annotations, *(["machine-generated"] if manifest.prompts else [])]
    sources = sorted({name.removeprefix("hf://datasets/").partition("@")[0] for name in manifest.commits})
    rows = sum(manifest.rows.get(story.main_table, {}).values())
    size = next((name for limit, name in SIZES if rows < limit), "n>1T")
    return {
        "pretty_name": story.title,
        **licence_facts(stated_in(manifest.config), sources_of(manifest.config), manifest.models),
        **({"language": list(story.languages)} if story.languages and not manifest.config.get("asks") else {}),
        **({"annotations_creators": creators} if creators else {}),
        **({"source_datasets": sources} if sources else {}),
        **({"task_categories": list(story.tasks)} if story.tasks else {}),
        "size_categories": [size],
        "tags": [*story.tags, "earmark"],
        "configs": configs,
    }


def licence_facts(stated: Mapping[str, Licence], sources: Set[str], models: Iterable[str]) -> dict[str, Any]:
    """Return the licences stated for sources, in the Hub's vocabulary. Unless the Hub knows all of them, the licence is
    `other` with their names; a source without a licence is `not stated`. Without stated licences, return nothing.

    Args:
        stated: by source; those of models are none of a source.
    """
    of_models = {name for model in models for name in names_of(model)}
    of_sources = {terms.licence for source, terms in stated.items() if source not in of_models}
    if not any(of_sources):
        return {}
    names = sorted(name or "not stated" for name in of_sources | ({None} if sources - stated.keys() else set()))
    known = [name.lower() for name in names if name.lower() in _hub_licences()]
    if len(known) == len(names):
        return {"license": known[0] if len(known) == 1 else known}
    return {"license": "other", "license_name": re.sub(r"[^a-z0-9.]+", "-", " ".join(names).lower()).strip("-")}


def with_licences(card: str, stated: Mapping[str, Licence], sources: Set[str], models: Iterable[str]) -> str:
    """Return a card with these licences, at its head and in their section, in place of its own."""
    head, _, body = card.removeprefix("---\n").partition("\n---\n")  # terms may hold a rule, further in
    facts: dict[str, Any] = yaml.safe_load(head)
    licensed = {name: value for name, value in facts.items() if name not in ("license", "license_name")}
    licensed |= licence_facts(stated, sources, models)
    if licensed != facts:
        head = yaml.safe_dump(licensed, sort_keys=False, allow_unicode=True).rstrip("\n")
    section = f"## Licences\n\n{_licences_section(stated)}\n\n"
    return f"---\n{head}\n---\n{_LICENCES.sub(lambda _: section, body, count=1)}"


def without_sections(body: str) -> str:
    """Return a card's body without the corpus's own sections, which stand before its tables."""
    before, mark, after = body.partition("\n## Tables\n")
    kept = [part for part in _HEADINGS.split(before) if not part.startswith("## ") or part.startswith(_ACCOUNTS)]
    return f"{''.join(kept)}{mark}{after}" if mark else body


def _licences_section(stated: Mapping[str, Licence]) -> str:
    if not stated:
        return (
            "The config states no licence: what the owners of the sources and of the generating models allow must be "
            "looked up."
        )
    rows = [
        f"| {markdown_cell(source)} | {markdown_cell(terms.licence or 'not stated')} | {MAY[terms.redistribute]} |"
        for source, terms in sorted(stated.items(), key=lambda one: one[0].lower())
    ]
    head = "| source | licence | what may be passed on |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n\nOf sources that are not in this list, rows may be passed on, and no audio."


@cache
def _hub_licences() -> frozenset[str]:
    text = resources.files("earmark.schemas").joinpath("hub_vocabulary.json").read_text("utf-8")
    return frozenset(json.loads(text)["licences"])


def _fields(table: Table) -> list[dict[str, str]]:
    rows = []
    for field in table.schema:
        metadata = {key.decode(): value.decode() for key, value in field.metadata.items()}
        rows.append(
            {
                "name": field.name,
                "type": str(field.type) + ("" if metadata["required"] == "true" else ", may be null"),
                "unit": metadata.get("unit", ""),
                "description": metadata["description"],
                "source": metadata.get("source", ""),
            }
        )
    return rows
