"""Ask scorers through the ledger like annotators: a callable or ONNX file here, a command, or a server."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from yarl import URL

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError
from earmark.schemas.evaluations import Scorer
from earmark.schemas.questions import canonical
from earmark.tasks.annotation.answers import Reply
from earmark.tasks.annotation.backend import Backend, Media, backend
from earmark.tasks.annotation.children import Child
from earmark.tasks.annotation.errors import AskError, BadAnswer, BadRequest, one_line
from earmark.tasks.annotation.http import Base64, HttpBackend, json_bytes
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.scorer import ScorerInput, as_json, function_of, numbers_of, windows_of
from earmark.tasks.annotation.transformers_local import InProcess, waveform

CLIPS_OF_COMMAND = 256  # in one call of a command, unless its pace says otherwise


@backend("scorer", in_process=True)
def make_scorer(config: AnnotatorConfig, media: Media) -> Backend:
    """Make the backend of a scorer."""
    if not isinstance(config, Scorer):
        raise ConfigError(
            f"annotator '{config.annotator}': a scorer gives clips numbers and answers no questions; name its file "
            "with `--scorer` of `earmark eval run` or `earmark eval score`"
        )
    if config.form == "server":
        return ServedScorer(config, media)
    if config.form == "command":
        together = config.inline_batch if "inline_batch" in config.model_fields_set else CLIPS_OF_COMMAND
        return CommandScorer(config.model_copy(update={"inline_batch": together}), media)
    return LocalScorer(config, media)


class LocalScorer(InProcess):
    """Callable or ONNX file, in this process."""

    config: Scorer

    def load(self) -> None:
        """Import the callable or load the file; raises as `function_of`."""
        self._score = function_of(self.config)

    def answer(self, requests: Sequence[Request]) -> list[str | AskError]:
        """Score the clips one by one."""
        return [self._one(request) for request in requests]

    def read(self, request: Request, raw: str) -> Reply:
        """Return the scores as JSON."""
        return Reply(raw)

    def _one(self, request: Request) -> str | AskError:
        try:
            return json.dumps(self._scores(ScorerInput.of(request)))
        except AskError as fault:
            return fault
        except Exception as error:  # noqa: BLE001 - a fault of third-party code belongs to its clip
            return BadRequest(f"{self.config.annotator} raised {type(error).__name__}: {one_line(str(error))}")

    def _scores(self, given: ScorerInput) -> dict[str, float]:
        samples, rate = waveform(self.media, given.clip)
        more: dict[str, Any] = {name: getattr(given, name) for name in self.config.takes}
        if given.reference is not None:
            more["reference"] = waveform(self.media, given.reference)
        names, cut = self.config.scores, self.config.windows
        pieces = [samples] if cut is None else windows_of(samples, cut)
        scores = [numbers_of(self._score(piece, rate, **more), names) for piece in pieces]
        return {name: math.fsum(one[name] for one in scores) / len(scores) for name in names}


class CommandScorer(LocalScorer):
    """Command: `COMMAND… CLIPS SCORES`, two files of JSON lines. Each clip has `id`, `audio` (a WAV file) and what the
    scorer takes; each line of scores has the `id` and numbers by name."""

    def load(self) -> None:
        """Do nothing: each group of clips starts the command."""

    def answer(self, requests: Sequence[Request]) -> list[str | AskError]:
        """Score a group of clips by one call."""
        with tempfile.TemporaryDirectory(prefix="earmark-") as temporary:
            faults: dict[int, AskError] = {}
            folder, lines = Path(temporary), []
            for place, request in enumerate(requests):
                try:
                    lines.append(canonical({"id": str(place), **self._line(ScorerInput.of(request), folder, place)}))
                except AskError as fault:
                    faults[place] = fault
            (folder / "clips.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
            why, rows = self._called(folder) if lines else ("", {})
        return [faults.get(place) or self._row(rows.get(str(place)), why) for place in range(len(requests))]

    def _line(self, given: ScorerInput, folder: Path, place: int) -> dict[str, Any]:
        line: dict[str, Any] = {name: getattr(given, name) for name in self.config.takes}
        for name, part in (("audio", given.clip), ("reference", given.reference)):
            if part is not None:
                path = folder / f"{place}-{name}.{part.form.codec}"
                path.write_bytes(self.media.audio(part))
                line[name] = str(path)
        return line

    def _called(self, folder: Path) -> tuple[str, dict[str, Any]]:
        """Run the command; return what it said last if it failed, and its lines by id."""
        files = [folder / "clips.jsonl", folder / "scores.jsonl"]
        with tempfile.TemporaryFile() as said:
            with Child([*self.config.command, *map(str, files)], stdout=said, stderr=said) as child:
                try:
                    code: int | str = child.wait(self.config.total_timeout_s * len(list(folder.glob("*-audio.*"))))
                except subprocess.TimeoutExpired:
                    code = "total_timeout_s"
            said.seek(0)
            last = one_line(said.read().decode("utf-8", "replace").strip().rpartition("\n")[2])
        why = f"{self.config.command[0]} ended with {code}: {last}" if code else ""
        rows: dict[str, Any] = {}
        for line in files[1].read_text("utf-8-sig", "replace").splitlines() if files[1].is_file() else ():
            try:
                row = json.loads(line)
                if (name := str(row.pop("id"))) in rows:
                    why = f"{self.config.command[0]}: expected one line of scores for id '{name}', found more"
                    row = None
                rows[name] = row
            except (ValueError, TypeError, KeyError, AttributeError):
                why = why or f"{self.config.command[0]}: expected an object with an id, found {one_line(line, 80)}"
        return why, rows

    def _row(self, row: Any, why: str) -> str | AskError:
        if row is None:
            return BadRequest(why or f"{self.config.command[0]} gave the clip no line of scores")
        try:
            return as_json(row, self.config.scores)
        except BadAnswer as fault:
            return fault


class ServedScorer(HttpBackend):
    """Scoring server: POST `<base_url>/score` of `model`, `scores`, `audio` (`data` in base64, `format`) and what the
    scorer takes; the answer is an object of numbers by name. A key goes to the servers bound to `api_key_env` in the
    environment."""

    def __init__(self, config: Scorer, media: Media) -> None:
        super().__init__(config, media, "", (), "Authorization", "Bearer {}")
        self._scorer = config

    async def send(self, request: Request) -> str:
        """Ask once and return the response's body."""
        return await self.http.post_json(URL(f"{self.base_url}/score"), await asyncio.to_thread(self._body, request))

    def read(self, request: Request, raw: str) -> Reply:
        """Return the scores as JSON."""
        return Reply(raw)

    def _body(self, request: Request) -> bytes:
        given = ScorerInput.of(request)
        taken: dict[str, Any] = {name: getattr(given, name) for name in self._scorer.takes}
        for name, part in (("audio", given.clip), ("reference", given.reference)):
            if part is not None:
                taken[name] = {"data": Base64(self._media.audio(part)), "format": part.form.codec}
        head = {"model": self._scorer.model, "scores": self._scorer.scores}
        return json_bytes({**self._config.extra_body, **head, **taken})
