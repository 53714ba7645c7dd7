"""Compute CLAP embeddings of audio with `transformers`, and the cosine of clip and text.

Both are measured once and kept, by clip and model, for every corpus and evaluation of a store.

A clip longer than the model's window (10 s) is split into consecutive windows, with their embeddings averaged: the
model's own way, random crops, would differ from run to run.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from earmark.schemas.errors import ConfigError, InputError, MissingExtraError, model_fault
from earmark.schemas.files import connected, open_regular, write_ahead
from earmark.tasks.audio.decode import decode_mono
from earmark.tasks.audio.faults import BadAudio

Vector: TypeAlias = npt.NDArray[np.float32]
_Clap: TypeAlias = tuple[Any, Any]

BATCH = 8  # windows or texts in a batch of the model
MOST_WINDOWS = 30  # of a clip; the rest, after five minutes for windows of ten seconds, is not used
MOST_ALIKE = 0.95  # mean cosine of different texts, or sounds; sound models have 0.2 to 0.3, a collapsed tower 0.999
TEXTS = (
    "A dog barks twice.",
    "Slow piano music in a large hall.",
    "An old man tells a story in a low voice.",
    "Heavy rain on a tin roof.",
    "A fast drum and bass track with distorted synthesizers.",
    "Church bells ring far away.",
    "A crowd cheers in a stadium.",
    "Somebody types on a keyboard.",
    "A solo violin plays a sad melody.",
    "A truck passes by at high speed.",
)
DECIMALS = 4  # scores are rounded: further digits depend on the batch
_WEIGHED = ("*.json", "*.txt", "*.model", "*.safetensors", "*.bin")
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS similarities (
    model_sha256 TEXT, clip_sha256 TEXT, text_sha256 TEXT, cosine REAL NOT NULL,
    PRIMARY KEY (model_sha256, clip_sha256, text_sha256)
) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS embeddings (
    model_sha256 TEXT, clip_sha256 TEXT, vector BLOB NOT NULL, -- float32, little-endian, of length 1
    PRIMARY KEY (model_sha256, clip_sha256)
)""",
    "CREATE TABLE IF NOT EXISTS proved (model_sha256 TEXT PRIMARY KEY)",  # models found to tell texts and sounds apart
)


class ClipText(NamedTuple):
    """A clip and a text about it."""

    clip_sha256: str  # SHA-256 of the clip's file
    path: Path  # its file
    text: str  # in a language of the model; most have English alone


class Similarity:
    """A CLAP model with its cache of results.

    Args:
        model: a folder (no network is needed), a checkpoint file of LAION's (`.pt`), or a name on the Hub.
        kept: the SQLite file of earlier embeddings and scores, created if missing.
        redecoded: clips, by SHA-256, decoded in part by Earmark 1.0.0 (`MediaIndex.redecoded`).
    """

    def __init__(self, model: str, kept: Path, redecoded: frozenset[str] = frozenset()) -> None:
        self.model, self._redecoded = model, redecoded
        kept.parent.mkdir(parents=True, exist_ok=True)
        self._kept = kept

    def cosines(self, pairs: Sequence[ClipText], seen: Callable[[int], None] = lambda count: None) -> list[float]:
        """Return the cosine similarity of each clip with its text, -1 to 1, to four decimals.

        The model runs once a call for a text and once ever for a clip, both only for new pairs; results are stored
        batch by batch, so that a kill costs a single batch.

        Raises:
            MissingExtraError: transformers or torch is missing.
            ConfigError: the model cannot be loaded.
            InputError: a clip cannot be decoded.
        """
        keys = [(self._name(one.clip_sha256), hashlib.sha256(one.text.encode()).hexdigest()) for one in pairs]
        with self._open() as connection:
            query = "SELECT cosine FROM similarities WHERE model_sha256 = ? AND clip_sha256 = ? AND text_sha256 = ?"
            rows = ((key, connection.execute(query, (self.digest, *key)).fetchone()) for key in set(keys))
            known = {key: float(row[0]) for key, row in rows if row is not None}
            if known:
                self._prove(connection)
            seen(sum(key in known for key in keys))
            new = {key: one for key, one in zip(keys, pairs, strict=True) if key not in known}
            texts = self._texts({key[1]: one.text for key, one in new.items()})
            by_clip: dict[str, list[tuple[str, str]]] = {}
            for key in new:
                by_clip.setdefault(key[0], []).append(key)
            paths = {clip: new[of_clip[0]].path for clip, of_clip in by_clip.items()}
            for clip, vector in self._vectors(connection, paths):
                of_clip = by_clip[clip]
                cosines = {key: round(float(vector @ texts[key[1]]), DECIMALS) for key in of_clip}
                new_rows = [(self.digest, clip, text, cosine) for (_, text), cosine in cosines.items()]
                connection.executemany("INSERT OR IGNORE INTO similarities VALUES (?, ?, ?, ?)", new_rows)
                connection.commit()
                known |= cosines
                seen(len(of_clip))
        return [known[key] for key in keys]

    def embeddings(
        self, paths: Mapping[str, Path | None], seen: Callable[[int], None] = lambda count: None
    ) -> dict[str, Vector]:
        """Return the embedding of each clip, (dimensions,), of length 1, by SHA-256; raise errors as `cosines`. The
        model runs once ever for a clip. Clips without path and stored embedding are left out."""
        vector_of = {}
        with self._open() as connection:
            for clip, vector in self._vectors(connection, paths):
                vector_of[clip] = vector
                seen(1)
        return vector_of

    def load(self) -> None:
        """Load the model, so that its errors appear before clips are searched."""
        _ = self._clap

    def _name(self, clip: str) -> str:
        return f"{clip}/ffmpeg" if clip in self._redecoded else clip

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 over the names and contents of the model's files."""
        whole, place = hashlib.sha256(), self._place
        files = [place] if place.is_file() else {path for pattern in _WEIGHED for path in place.glob(pattern)}
        for path in sorted(files):
            with open_regular(path) as file:
                whole.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return whole.hexdigest()

    @cached_property
    def _place(self) -> Path:
        place = Path(self.model).expanduser()
        if place.exists():
            return place
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

        try:
            return Path(snapshot_download(self.model, allow_patterns=list(_WEIGHED)))
        except (OSError, HFValidationError, HfHubHTTPError, LocalEntryNotFoundError) as error:
            what = " ".join(str(error).split())[:200]
            raise ConfigError(
                f"similarity model '{self.model}': expected a folder, a file or a model on the Hub, found none: {what}"
            ) from None

    @cached_property
    def _clap(self) -> _Clap:
        """Load the model, and prove that different texts and sounds have different embeddings."""
        try:
            import torch
            from transformers import AutoProcessor, ClapModel

            from earmark.tasks.audio.clap_checkpoint import load_checkpoint
        except ImportError:
            raise MissingExtraError("a similarity model", "models") from None
        place = self._place
        try:
            if place.is_file():
                processor, model = load_checkpoint(place)
            else:
                processor = AutoProcessor.from_pretrained(place, trust_remote_code=False)
                model = ClapModel.from_pretrained(place, dtype=torch.float32, trust_remote_code=False)
        except Exception as error:  # noqa: BLE001 - errors of pickle, safetensors and transformers share no base
            raise ConfigError(
                f"similarity model '{self.model}': expected a CLAP model of transformers: {model_fault(error)}"
            ) from None
        clap = processor, model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
        sounds = _sounds(processor.feature_extractor.sampling_rate)
        for tower, vectors in (("texts", _of_texts(clap, TEXTS)), ("sounds", _of_sounds(clap, sounds))):
            cosines = (np.array(vectors) @ np.array(vectors).T)[~np.eye(len(vectors), dtype=bool)]
            if not float(cosines.mean()) < MOST_ALIKE:
                raise ConfigError(
                    f"similarity model '{self.model}': expected {len(vectors)} different {tower} to have a mean cosine "
                    f"below {MOST_ALIKE}, found {cosines.mean():.4f}: it tells none from another; name another model"
                )
        return clap

    def _texts(self, texts: dict[str, str]) -> dict[str, Vector]:
        vectors_of: dict[str, Vector] = {}
        for batch in _batches(texts.items()):
            vectors = _of_texts(self._clap, [text for _, text in batch])
            vectors_of.update(zip([key for key, _ in batch], vectors, strict=True))
        return vectors_of

    def _vectors(
        self, connection: sqlite3.Connection, paths: Mapping[str, Path | None]
    ) -> Iterator[tuple[str, Vector]]:
        """Yield clips' embeddings: first stored ones, then new ones, stored as they come."""
        query = "SELECT vector FROM embeddings WHERE model_sha256 = ? AND clip_sha256 = ?"
        new = {}
        for clip, path in paths.items():
            row = connection.execute(query, (self.digest, self._name(clip))).fetchone()
            if row is not None:
                self._prove(connection)
                yield clip, np.frombuffer(row[0], "<f4")
            elif path is not None:
                new[clip] = path
        for clip, vector in self._clips(new):
            content = np.asarray(vector, "<f4").tobytes()
            key = (self.digest, self._name(clip), content)
            connection.execute("INSERT OR IGNORE INTO embeddings VALUES (?, ?, ?)", key)
            connection.commit()
            yield clip, vector

    def _clips(self, paths: Mapping[str, Path]) -> Iterator[tuple[str, Vector]]:
        """Yield clips' embeddings: the mean over a clip's windows, scaled to length 1."""
        if not paths:
            return
        listener = self._clap[0].feature_extractor
        rate = listener.sampling_rate

        def windows() -> Iterator[tuple[str, npt.NDArray[np.floating]]]:
            for clip, path in paths.items():
                try:
                    samples = decode_mono(path, rate)
                except BadAudio as bad:
                    raise InputError(f"similarity model '{self.model}': {path}: {bad.reason}: {bad.detail}") from None
                yield from ((clip, window) for window in _windows(samples, listener.nb_max_samples, rate))

        def vectors() -> Iterator[tuple[str, Vector]]:
            for batch in _batches(windows()):
                clips = [clip for clip, _ in batch]
                yield from zip(clips, _of_sounds(self._clap, [window for _, window in batch]), strict=True)

        for clip, of_clip in groupby(vectors(), key=lambda pair: pair[0]):
            yield clip, _unit(np.mean([vector for _, vector in of_clip], axis=0))

    def _prove(self, connection: sqlite3.Connection) -> None:
        """Load the model once if its kept results may be of a collapsed tower: they were kept before any check."""
        if connection.execute("SELECT 1 FROM proved WHERE model_sha256 = ?", (self.digest,)).fetchone() is None:
            self.load()
            self._mark(connection)

    def _mark(self, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT OR IGNORE INTO proved VALUES (?)", (self.digest,))
        connection.commit()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with connected(self._kept) as connection:
            write_ahead(connection)
            for statement in _SCHEMA:
                connection.execute(statement)
            yield connection


def _of_texts(clap: _Clap, texts: Sequence[str]) -> list[Vector]:
    processor, model = clap
    longest = min(processor.tokenizer.model_max_length, model.config.text_config.max_position_embeddings - 2)
    tokens = processor.tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=longest)
    return _embedded(model.get_text_features, tokens.to(model.device))


def _of_sounds(clap: _Clap, signals: Sequence[npt.NDArray[np.floating]]) -> list[Vector]:
    processor, model = clap
    listener = processor.feature_extractor
    inputs = listener(signals, sampling_rate=listener.sampling_rate, return_tensors="pt").to(model.device)
    if "is_longer" in inputs:
        inputs["is_longer"] = inputs["is_longer"] & False  # the extractor marks a random clip of a batch
    return _embedded(model.get_audio_features, inputs)


def _embedded(embed: Callable[..., Any], inputs: Any) -> list[Vector]:
    import torch

    with torch.inference_mode():
        vectors = embed(**inputs).pooler_output.float().cpu().numpy()
    return [_unit(vector) for vector in vectors]


def _sounds(rate: int) -> list[npt.NDArray[np.floating]]:
    time, noise = np.arange(rate) / rate, np.random.default_rng(0).standard_normal(rate)
    tones = [np.sin(2 * np.pi * hertz * time) for hertz in (55, 220, 880, 3520)]
    others = (
        noise / 4,
        noise / 4 * (time % 0.5 < 0.02),  # clicks
        np.cumsum(noise) / rate**0.5 / 2,  # rumble
        np.sign(tones[1]) / 2,
        np.sin(2 * np.pi * (100 + 2000 * time) * time),  # a sweep
        tones[2] * (time % 0.25 < 0.1),  # beeps
    )
    return [sound.astype(np.float32) for sound in (*tones, *others)]


def _windows(samples: npt.NDArray[np.floating], length: int, rate: int) -> Iterator[npt.NDArray[np.floating]]:
    """Yield consecutive windows; skip a rest below a second after another window."""
    for start in range(0, min(len(samples), MOST_WINDOWS * length), length):
        window = samples[start : start + length]
        if start == 0 or len(window) >= rate:
            yield window


def _batches(things: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(things)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _unit(vector: Vector) -> Vector:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)
