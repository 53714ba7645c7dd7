"""Build the report sections of `instrumentals`: amount removed, flags, and tracks before and after."""

from earmark.schemas.instrumentals import InstrumentalTrack
from earmark.tasks.pipeline.report import Material, count, histogram, sample
from earmark.tasks.store.figures import AudioPlayer, Bars, Browser, Row, Section

SHOWN = 20  # a track is heard twice


def sections(material: Material) -> list[Section]:
    """Return the report's own sections."""
    db = material.db
    tags = db.execute(
        "SELECT tag, count(*) FROM (SELECT unnest(tags) AS tag FROM tracks) GROUP BY tag ORDER BY 2 DESC, 1 LIMIT 24"
    ).fetchall()
    flags = db.execute(
        "SELECT flag, count(*) FROM (SELECT unnest(flags) AS flag FROM tracks) GROUP BY flag ORDER BY 2 DESC, 1"
    ).fetchall()
    measured = (
        histogram(db, "tracks", "removed_db", "What was removed, against the mix", unit="dB"),
        histogram(db, "tracks", "residual_voice", "Residual voice, -1 to 1", "Well above 0 where some of it stays."),
        Bars("Flags", tuple(flags) or (("none", 0.0),), says="Tracks that did not pass a check; they stay."),
        Bars("Most frequent tags, tracks", tuple(tags)),
    )
    listened = Browser("tracks", _tracks(material), count(db, "tracks"))
    return [Section("What was removed", measured), Section("Tracks before and after", (listened,))]


def _tracks(material: Material) -> tuple[Row, ...]:
    folder = material.stage.version
    rows = []
    tracks: list[InstrumentalTrack] = sample(material.db, "tracks", "track_id", most=SHOWN)
    for row in tracks:
        after = row["audio"]["bytes"] if row["audio"] else folder / str(row["instrumental"])
        clips = (AudioPlayer("mix", row["mix_sha256"]), AudioPlayer("without the voice", row["clip_sha256"], after))
        tags = {"split": row["split"], "flags": ", ".join(row["flags"]) or "none"}
        facts = {
            "removed": f"{row['removed_db']:.1f} dB",
            "residual voice": f"{row['residual_voice']:.3f}",
            "length": f"{row['duration_s']:.1f} s",
            "tags": ", ".join(row["tags"]),
        }
        rows.append(Row(row["track_id"], tags, facts, clips=clips))
    return tuple(rows)
