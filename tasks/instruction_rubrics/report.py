"""Build the report and card sections of `instruction-rubrics`: samples to hear with their items, kinds, judges."""

import duckdb

from earmark.schemas.instruction_rubrics import InstructionRubrics, Subject
from earmark.schemas.rubric_tables import RubricSample
from earmark.tasks.evaluation.qualification import qualification_section
from earmark.tasks.instruction_rubrics.rubrics import STABILITY
from earmark.tasks.pipeline.report import Material, count, histogram, sample, shares
from earmark.tasks.store.figures import AudioPlayer, Browser, Row, Section
from earmark.tasks.store.result_table import ResultTable, percent
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage


class ShownSample(RubricSample):
    """A sample with its items, one a line."""

    items_shown: str


def sections(material: Material) -> list[Section]:
    """Return the report's own sections."""
    db = material.db
    db.execute(query("instruction_rubrics/shown"))
    listed = query("instruction_rubrics/shown_rows")  # the items of those shown: all together are gigabytes
    samples: list[ShownSample] = sample(db, "shown", "sample_id", by="kind", rows=listed)
    rows = tuple(
        Row(
            row["sample_id"],
            {"subset": row["subset"], "kind": row["kind"], "split": row["split"]},
            {
                "follows": "yes" if row["follows"] else "no",
                "changed": f"{row['attribute']}: {row['span_before']} → {row['span_after']}"
                if row["attribute"]
                else "",
            },
            {"instruction": row["instruction"], "true of the clip": row["truth"], "items": row["items_shown"]},
            clips=(AudioPlayer("clip", row["clip_sha256"]),),
        )
        for row in samples
    )
    attributes = db.execute(
        "SELECT domain, attribute, count(DISTINCT sample_id) FROM samples WHERE attribute IS NOT NULL "
        "GROUP BY ALL ORDER BY domain, attribute"
    ).fetchall()
    changed = ResultTable("Changed attributes", ("domain", "attribute", "samples"), tuple(attributes))
    figures = (
        shares(db, "shown", "kind", "Samples by kind"),
        shares(db, "items", "dimension", "Items by dimension"),
        histogram(db, "shown", "items", "Items a sample", unit="items"),
    )
    return [Section("Samples", (*figures, balance_table(db), changed, Browser("samples", rows, count(db, "shown"))))]


def balance_table(db: duckdb.DuckDBPyConnection) -> ResultTable:
    """Tabulate samples and items and the share of met items, by set, subset and kind."""
    columns = ("split", "subset", "kind", "samples", "items", percent("share of items that are yes"))
    rows = db.execute(query("instruction_rubrics/balance")).fetchall()
    return ResultTable("Samples by subset", columns, tuple(rows))


def card_sections(stage: Stage) -> dict[str, str]:
    """Write the card's section on the tables: the samples of each kind."""
    with connect(stage.work / "spill") as db:
        view_parquet(db, "samples", stage.files("samples"))
        table = balance_table(db)
    return {table.title: table.markdown() if table.rows else "No pair was left."}


def build_sections(stage: Stage, config: InstructionRubrics) -> dict[str, str]:
    """Write the card's sections of a build: the tables, the agreement of both passes over generated audio, each kind's
    losses to verification, and the role of the model to be trained.

    These count answers, not rows: withdrawn rows are left out.
    """
    notes = [note for step in stage.steps() for note in step.notes]
    passes = next((note for note in notes if "an overlap of" in note), None)
    agreement = {"Generated audio, judged twice": f"{passes[0].upper()}{passes[1:]}."} if passes else {}
    lost = "\n".join(f"- {note}" for note in notes if "lost to verification" in note)
    again = [note.removeprefix(STABILITY).strip() for note in notes if note.startswith(STABILITY)]
    agreement |= {"Re-decomposition": f"{again[0]}."} if again else {}
    sections = card_sections(stage) | agreement | ({"Lost to verification": lost} if lost else {})
    return sections | _thresholds(config) | qualification_section(stage) | _trained(config)


def _thresholds(config: InstructionRubrics) -> dict[str, str]:
    """State the similarity of each source from which captions fit, to which swaps are wrong, and what set them."""
    uses: tuple[tuple[Subject, str], ...] = (("positives", "least"), ("swaps", "most"))
    rows = tuple(
        (source.name, *(config.bound(source.name, bound) for _, bound in uses))
        for source in config.sources
        if any("similarity" in config.verifiers(source.name, subject) for subject, _ in uses)
    )
    if config.similarity is None or not rows:
        return {}
    table = ResultTable("Thresholds of similarity", ("source", "captions, at least", "swaps, at most"), rows)
    by = config.similarity.set_by or "no procedure is named: by hand"
    return {table.title: f"Of {config.similarity.model}. Set by: {by}.\n\n{table.markdown()}"}


def _model(name: str) -> str:
    """Return a model's name without backend and organisation, since servers and hubs name these differently."""
    backend, _, model = name.partition(":")
    return (model if model and "/" not in backend else name).rpartition("/")[2].casefold()


def _trained(config: InstructionRubrics) -> dict[str, str]:
    """State the role of the model to be trained in making the labels."""
    if config.trains is None:
        return {}
    own = _model(config.trains)
    idle = {"reader": config.reader is None, "translator": not config.bilingual}
    roles = [role for role, one in config.asked().items() if _model(one.annotator) == own and not idle.get(role)]
    hand = f"**It was also the {', '.join(roles)}: it would learn from itself.**" if roles else "It had no part in it."
    return {"The model to be trained": f"Made to train {config.trains}. {hand}"}
