"""Check that bench and corpus share no clip, by hash or by sound, and no text."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from earmark.schemas.instruction_rubrics import NEAR_CAPTIONS, InstructionRubrics
from earmark.tasks.audio.recordings import Print, recordings
from earmark.tasks.instruction_rubrics.rows import CaptionRow
from earmark.tasks.pipeline.references import Side, check_disjoint, fingerprints
from earmark.tasks.store.parquet import row_schema, write_rows
from earmark.tasks.store.staging import Stage

PRINTS = row_schema("clip_sha256 string, numbers uint32[]")


def recordings_of(
    stage: Stage, config: InstructionRubrics, rows: Sequence[CaptionRow]
) -> tuple[list[str], Path | None]:
    """Return for each caption the SHA-256 of a representative clip, the same for all clips of a recording.

    Returns:
        These, and the file of the clips' acoustic fingerprints, if configured.
    """
    if not config.fingerprint:
        return [row["clip_sha256"] for row in rows], None
    paths = {row["clip_sha256"]: Path(row["path"]) for row in rows}
    prints = fingerprints(paths, config.length_s[1])
    file, clips = stage.work / "prints.parquet", list(paths)
    write_rows(file, PRINTS, list(zip(clips, prints, strict=True)))
    first = dict(zip(clips, recordings(prints, config.fingerprint), strict=True))
    return [clips[first[row["clip_sha256"]]] for row in rows], file


def check_leakage(
    prints_file: Path | None,
    config: InstructionRubrics,
    clips: Mapping[str, Sequence[str]],
    texts: Mapping[str, Sequence[str]],
) -> None:
    """Check that bench and corpus share no clip, no recording and no near-duplicate instruction.

    Args:
        prints_file: acoustic fingerprints of the clips, if recordings are compared.
        clips: SHA-256 of the published samples' clips by split, each once.
        texts: words of every instruction by split, in its own language.
    """
    prints: dict[str, Print] = {}
    if prints_file is not None:
        columns = pq.ParquetFile(prints_file).read().to_pydict()
        numbers = (np.array(one, np.uint32) for one in columns["numbers"])
        prints = dict(zip(columns["clip_sha256"], numbers, strict=True))
    test, train = (
        Side(split, clips[split], texts[split], [prints[clip] for clip in clips[split]] if prints else ())
        for split in ("test", "train")
    )
    check_disjoint(test, train, recording=config.fingerprint or 1.0, text=NEAR_CAPTIONS)
