"""Read the first rows of a table as text; detect its delimiter and its header.

A faulty first line is reported, never dropped in silence.
"""

import gzip
import math
import re
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import Reject, shown
from earmark.tasks.importers.cells import AS_FILES, decimal
from earmark.tasks.importers.json_arrays import flat_lines, object_lines, read_records
from earmark.tasks.importers.lines import named_delimiter, read_rows
from earmark.tasks.importers.lists import UNFILLED, ListFile, fitted
from earmark.tasks.importers.table import cell_at, leaves_of

# letters with marks of languages beyond Latin-1 (ł, č, ğ) as plain ones
_LATIN = {code: unicodedata.normalize("NFKD", chr(code))[0] for code in range(0x100, 0x180)} | {0x141: "L", 0x142: "l"}
_WORD = re.compile(r"[A-ZÀ-Þ]+(?![a-zß-ÿ])|[A-ZÀ-Þ]?[a-zß-ÿ]+|\d+|[^\W\d_A-Za-zÀ-ÿ]+")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


# Words without meaning of their own: `listenerId` and `nameListener` hold the listener, `Answer.quality` the quality.
_FILLERS = word_set(
    "id ids uuid guid pid name names nr no number num code key label input answer url path filepath file the of "
    "nummer numéro numero número numer номер do du del"
)

RATINGS = word_set(
    "mos cmos dmos smos nmos bvmos score scores rating choice opinion quality naturalness intelligibility similarity "
    "likability likeability pleasantness preference expressiveness enjoyment usefulness complexity musicality "
    "alignment relevance impression overall ovr ovrl grade stars rank ranking annoyance impairment mushra acr ccr dcr "
    "bewertung urteil qualität qualitaet natürlichkeit natuerlichkeit verständlichkeit schulnote note punkte rang "
    "évaluation qualité naturel jugement puntuación puntuacion calificación valoración calidad naturalidad nota "
    "punteggio voto valutazione qualità naturalezza pontuação avaliação qualidade oordeel kwaliteit "
    "оценка качество естественность 评分 得分 分数 打分 质量 自然度 音质 評価 点数 評点 自然性 音質 "
    "평점 점수 품질 자연성 beoordeling ocena jakosc betyg"
)
# Words for a rating if only fillers and words of this set stand beside them.
_ALONE = word_set("mean average avg value response slider mittelwert moyenne media 平均")
_NO_RATING = word_set(
    "id ids uuid age alter âge edad count counts n num nr no number index idx order position pos time timestamp date "
    "rt duration dur ms sec secs seconds std sd stdev sem se var variance ci ci95 low high min max lower upper votes "
    "listener rater participant subject worker user annotator judge assessor session trial block page comment comments "
    "gender sex year years experience played plays playcount clicks volume started stopped submitted attention trap "
    "gold control check predicted pred prediction scale reference ref stimulus file wav random seed rep thisn hit "
    "assignment reward approval percent lifetime person reviewer examiner batch round week day month "
    "hour minute weight length size bitrate kbps khz hz device headphone headphones confidence certainty difficulty "
    "familiarity predictions suggestion suggestions "
    # measured by a model or a formula, not by a person
    "dnsmos utmos utmo nisqa wvmos squim distillmos scoreq visqol polqa pesq stoi estoi sdr sisdr snr wer cer mcd clap "
    "fad kad muq audiobox cosine bleu rouge meteor cider bert bertscore lufs "
    "llm lalm gpt chatgpt gemini claude qwen deepseek mistral ai "
    "编号 时间 日期 年龄 数量 次数 标准差 顺序 序号 年齢 時間 日付 回数 番号 順序 번호 시간 나이 횟수 순서"
)

BY_A_MODEL = (("model", "score"), ("model", "rating"), ("model", "mos"), ("machine", "score"))

HOLDERS: Mapping[str, str] = {
    "listener": "listener rater annotator worker subject judge user participant assessor evaluator respondent proband "
    "vpn hörer hörerin hoerer zuhörer bewerter beurteiler teilnehmer versuchsperson luisteraar beoordelaar deelnemer "
    "proefpersoon auditeur auditrice évaluateur juge sujet oyente evaluador evaluadora participante sujeto juez "
    "ouvinte avaliador avaliadora sujeito juiz ascoltatore valutatore partecipante soggetto giudice sluchacz "
    "oceniajacy uczestnik sluchacza posluchac lyssnare dinleyici слушатель слушателя оценщик оценщика участник "
    "испытуемый слухач "
    "听众 听者 评测员 评测人 评分人 评分员 评分者 评价人 评价者 打分人 打分员 打分者 评委 被试 受试者 "
    "参与者 志愿者 被験者 評価者 評定者 聴取者 回答者 参加者 평가자 채점자 청취자 참가자 피험자 prolific email",
    "system": "system systems sys model method codec algorithm engine vocoder generator tts systeme système modell "
    "verfahren sistema modelo modèle система 系统 模型 方法 システム モデル 手法 시스템 모델",
    "speaker": "speaker singer voice spk sprecher locuteur hablante parlante диктор 说话人 歌手 话者 話者 화자",
    "content": "content text sentence phrase prompt transcript transcription cluster utt utterance ref reference "
    "original song passage item satz texto frase phrase текст 文本 句子 文 텍스트",
    "condition": "condition con snr degradation bedingung",
    "subset": "subset test experiment track study db database dataset corpus 数据集 データセット",
    "split": "split partition fold",
}
_FILES = _words(
    "file filename wav wavname path audio clip stimulus stimuli stim sample recording sound utt utterance url deg "
    "degraded aufnahme datei audiodatei fichier archivo grabación enregistrement bestand plik nagranie arquivo "
    "файл 音频 文件 音声 ファイル 파일"
)
_REFERENCES = word_set("ref reference original orig source src clean anchor gt target")
_EXACT: Mapping[str, frozenset[str]] = {
    "votes": frozenset(
        ["votes", "n votes", "num votes", "ratings", "n ratings", "num ratings", "rating count", "count", "n"]
    ),
    "mos_std": frozenset(["mos std", "std", "score std", "rating std", "stdev", "sd", "mos sd", "mos stdev"]),
    "subset": frozenset({"session test id"}),
    "content": frozenset({"content cluster"}),
    "listener": frozenset({"name listener", "session uuid", "response id", "completed by"}),
    "system": frozenset({"tts system"}),
}
_PEOPLE = re.compile(f"(?:{HOLDERS['listener'].replace(' ', '|')})$").search
QUESTIONS = word_set(
    "question dimension attribute aspect criterion measure metric task frage scale axis item variable type construct"
)
LOW_IS_GOOD = word_set("rank ranking rang")
# Of ITU's grades of impairment (BS.1116, BS.1284, P.800 annex D) the highest is the best; of other scales the lowest.
MAY_BE_LOW = word_set(
    "grade note nota schulnote annoyance impairment discomfort distortion noisiness artifact artifacts artefact "
    "artefacts intrusiveness effort dissimilarity unnaturalness verzerrung lästigkeit beeinträchtigung gêne distorsion "
    "molestia distorsión disturbo fastidio distorsione distorção incômodo hinder искажение "
    "失真 噪声 噪音 杂音 雜音 劣化 歪み ノイズ 雑音 不自然 왜곡 잡음 소음"
)
LOW_IN_WORDS = re.compile(  # a scale explained in a column's name, such as `Quality (1 = best)`
    r"\b1\s*[=:]?\s*(best|excellent|very good|sehr gut|not at all|imperceptible|inaudible)\b"
    r"|\b(5|7|9|10|100)\s*[=:]?\s*(worst|bad|very bad|very (annoying|noisy)|sehr schlecht)\b",
    re.IGNORECASE,
)


def meant(words: Iterable[str], known: frozenset[str]) -> bool:
    """Return whether a word is known; scripts without spaces may write it inside a longer word."""
    return any(word in known or (word[0] > "\u2fff" and any(one in word for one in known)) for word in words)


class ColumnName(NamedTuple):
    """The words of a column's name, with their meaning.

    A name is the list of its words in small letters. Words show a column's content; a column counts as ratings only if
    no other word contradicts it (`rating_time`, `score_std`, `listener_quality_id`).
    """

    words: tuple[str, ...]

    @property
    def rates(self) -> bool:
        """Return whether the column's name suggests ratings."""
        if self.words in (("answer",), ("rating", "response")):
            return True
        # `is_rated`, `rated_by`, `model_score`; in `Model A rating` people rate a model
        if {*self.words[:1]} & {"is", "has"} or self.words[-1:] == ("by",) or self.words in BY_A_MODEL:
            return False
        if meant(self.words, _NO_RATING) or any(map(_PEOPLE, self.words)):  # 評価者 is who rates, 評価 the rating
            return False
        rest = {word for word in self.words if word not in _FILLERS and not word.isdecimal()}
        return meant(rest, RATINGS) or (bool(rest) and rest <= _ALONE)

    @property
    def core(self) -> tuple[str, ...]:
        """Return the words with meaning."""
        return tuple(word for word in self.words if word not in _FILLERS) or self.words

    def holds(self, what: str) -> bool:
        """Return whether the column holds a listener, system, …: its only meaningful word names the kind."""
        text = " ".join(self.words)
        if text in _EXACT.get(what, ()):
            return True
        return len(self.core) == 1 and meant(self.core, word_set(HOLDERS.get(what, "")))

    @property
    def file(self) -> int | None:
        """Return the rank of the column's word for clips, 0 the surest; None if the name suggests no clips."""
        if self.is_reference:
            return None
        if {*self.words} & {"time", "duration", "type", "rate", "played", "order", "comment", "transcript", "note"}:
            return None
        return min((_FILES.index(word) for word in self.words if word in _FILES), default=None)

    @property
    def is_reference(self) -> bool:
        """Return whether the column names a reference for comparison."""
        return bool({*self.words} & _REFERENCES)


def read_name(name: str) -> ColumnName:
    """Split a column's name into lower-case words."""
    plain = unicodedata.normalize("NFC", name).translate(_LATIN)
    return ColumnName(tuple(word.lower() for word in _WORD.findall(plain)))


def last_keys(name: str) -> list[ColumnName]:
    """Return the names that the last keys of a nested column make, such as `user` and `user.id` of `vote.user.id`."""
    keys = name.split(".")
    return [read_name(".".join(keys[at:])) for at in range(1, len(keys))]


LOOKED_AT = 20_000  # rows
OPENED: tuple[tuple[()] | None, ...] = ((), None)  # lists of objects: none of them, or all where no field rates without
LEAST_FITS = 0.5  # share of the rows that must be as wide as the first
MARKS = (",", "\t", ";", "|", " ")
WORDS = {",": "comma", "\t": "tab", ";": "semicolon", " ": "space", "|": "|", ":": "colon"}
_CLIP_COLON = re.compile(r"[^:,;|\t]+\.\w{2,4}\s*:\s*[\d.,+-]+\s*")  # `c0.wav: 4`
AUDIO = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aac", ".aiff")
BOOKS = {b"PK\x03\x04": "a workbook (Excel, LibreOffice) or another zip file", b"\xd0\xcf\x11\xe0": "an Excel workbook"}
AS_CSV = (
    "save it as CSV, one rating a row: in Excel 'Save as', 'CSV UTF-8'; in LibreOffice 'Save as', 'Text CSV', UTF-8"
)


IN_BOOKS = ("xl/", "word/", "[Content_Types].xml", "mimetype", "content.xml")  # what their zip files hold
PACKED = (b"7z\xbc\xaf", b"Rar!", b"BZh", b"\xfd7zX", b"\x28\xb5\x2f\xfd")  # 7z, RAR, bzip2, xz, Zstandard
SOUND = re.compile(rb"RIFF|RF64|fLaC|OggS|ID3|\xff[\xe2-\xff]|FORM|caff|....ftyp", re.DOTALL)  # how sound files begin
FEW_ROWS = 16  # of which bytes are read


class Sample(NamedTuple):
    """A table's first rows."""

    delimiter: str  # empty for a table other than text
    names: list[str]  # of the columns; empty without a header
    rows: list[list[str]]


def require_table(path: Path) -> None:
    """Refuse a workbook and an archive.

    Raises:
        InputError: the file is one of these; the message says how to save it.
    """
    with path.open("rb") as file:
        start = file.read(512)
    if _is_archive(path, start):
        raise InputError(
            f"{path.name}: expected a table, found an archive: unpack it first (tar -xf, unzip), then give --from a "
            "list in it; audio_root names the folder of its clips"
        )
    start = start[:4]
    if start in BOOKS or path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        raise InputError(f"{path.name}: expected a table as text, found {BOOKS.get(start, 'a workbook')}: {AS_CSV}")


def require_names(path: Path) -> None:
    """Refuse a Parquet file that holds the clips themselves.

    Raises:
        InputError: it does; the message says how to write them to files.
    """
    if ending(path) == "parquet" and (held := _sounds_in(path)):
        raise InputError(
            f"{path.name}: expected a table that names audio files, found their bytes in {shown(held)}: {AS_FILES}"
        )


def _is_archive(path: Path, start: bytes) -> bool:
    """Return whether a file is a tar, perhaps packed, a zip other than a workbook, or of another archiver."""
    with suppress(zipfile.BadZipFile, OSError, EOFError, zlib.error):
        if start.startswith(b"PK"):
            with zipfile.ZipFile(path) as packed:
                return not any(name.startswith(IN_BOOKS) for name in packed.namelist())
        if start.startswith(b"\x1f\x8b"):
            with gzip.open(path) as stream:
                start = stream.read(512)
    return start[257:262] == b"ustar" or start.startswith(PACKED)


def _sounds_in(path: Path) -> str:
    """Return the first column of a Parquet file that holds sound files, at any depth; empty without one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with suppress(OSError, ValueError, pa.ArrowException), pq.ParquetFile(path) as file:
        for field in file.schema_arrow:
            if "binary" not in str(field.type):
                continue
            for batch in file.iter_batches(FEW_ROWS, columns=[field.name]):
                held = [*_bytes_in(batch.column(0).to_pylist(), field.name)]
                if sounds := [way for way, cell in held if SOUND.match(cell)]:
                    return sounds[0]
                if held:  # until then, rows without a clip
                    break
    return ""


def _bytes_in(cell: object, way: str) -> Iterator[tuple[str, bytes]]:
    """Yield the bytes in a cell, with the keys that lead to them."""
    if isinstance(cell, bytes):
        yield way, cell
    for key, inner in cell.items() if isinstance(cell, dict) else ():
        yield from _bytes_in(inner, f"{way}.{key}")
    for inner in cell if isinstance(cell, list | tuple) else ():
        yield from _bytes_in(inner, way)


def ending(path: Path) -> str:
    """Return the type in a table's name."""
    return "".join(path.suffixes[-2:]).lower().removesuffix(".gz").rpartition(".")[2]


def read_sample(path: Path, encoding: str | None = None) -> Sample:
    """Read the first rows of CSV, TSV or TXT (also `.gz`), JSON, JSON lines or Parquet.

    Args:
        encoding: of a text; empty: UTF-8, and a refusal names the option; None: there is no such option.

    Raises:
        InputError: the file cannot be read as a table, or its first line does not fit the others.
    """
    readers: dict[str, Callable[[Path], Sample]] = {
        **{"parquet": _parquet, "jsonl": _objects, "ndjson": _objects, "json": _records}
    }
    reader = readers.get(ending(path))
    return reader(path) if reader else _text(path, encoding)


def is_number(cell: str) -> bool:
    """Return whether a cell is a number, also with a decimal comma."""
    return math.isfinite(decimal(cell))


def is_audio(cell: str) -> bool:
    """Return whether a cell ends like the name of a sound file."""
    return cell.strip().lower().endswith(AUDIO)


def _parquet(path: Path) -> Sample:
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        leaves = leaves_of(file.schema_arrow)
        batch = next(file.iter_batches(LOOKED_AT, columns=list(leaves)))
    except (OSError, ValueError, StopIteration) as error:
        raise InputError(f"{path.name or path}: expected a Parquet file with rows: {shown(error)}") from None
    rows = [[_cell(cell_at(row, leaf)) for leaf in leaves.values()] for row in batch.to_pylist()]
    return Sample("", list(leaves), rows)


def _objects(path: Path) -> Sample:
    for columns in OPENED:
        lines = [row for _, row in islice(flat_lines(object_lines(ListFile(path, path.name)), columns), LOOKED_AT)]
        objects = [row for row in lines if isinstance(row, dict)]
        if _rates(objects):
            break
    faults = [row for row in lines if isinstance(row, Reject)]
    if len(objects) < 2 and faults:
        raise InputError(f"{path.name}, line {faults[0].line}: {faults[0].detail}")
    return _named(objects)


def _records(path: Path) -> Sample:
    for columns in OPENED:
        objects = list(islice(read_records(ListFile(path, path.name), columns), LOOKED_AT))
        if _rates(objects):
            break
    if len(objects) < 2:
        raise InputError(
            f"{path.name}: expected an array of objects, one a rating, found JSON of another shape: {AS_CSV}"
        )
    return _named(objects)


def _rates(objects: list[dict[str, object]]) -> bool:
    """Return whether a field outside lists of objects is called a rating."""
    lists = {
        name
        for row in objects
        for name, cell in row.items()
        if isinstance(cell, list) and cell and isinstance(cell[0], dict)
    }
    return any(read_name(name).rates for name in {name for row in objects for name in row} - lists)


def _named(objects: list[dict[str, object]]) -> Sample:
    names = list(dict.fromkeys(name for row in objects for name in row))
    return Sample("", names, [[_cell(row.get(name)) for name in names] for row in objects])


def _cell(cell: object) -> str:
    if isinstance(cell, list) and not any(isinstance(one, dict | list) for one in cell):
        return f"[{', '.join(map(str, cell))}]"
    return "" if cell is None or cell != cell else str(cell)  # NaN is an empty cell to a build too


def _text(path: Path, encoding: str | None) -> Sample:
    name = path.name or str(path)
    named = named_delimiter(path, name, encoding or "")
    marks = (named,) if named else MARKS
    splits = {mark: list(islice(read_rows(path, name, mark, encoding=encoding or ""), LOOKED_AT)) for mark in marks}
    rows = [cells for _, cells in splits[marks[0]]]
    lines = [",".join(cells) for cells in rows if not isinstance(cells, Reject)]
    if not named and sum(_CLIP_COLON.fullmatch(line) is not None for line in lines) > 0.9 * len(rows):
        splits = {":": list(islice(read_rows(path, name, ":", encoding=encoding or ""), LOOKED_AT))}
    bad = next((row for row in rows if isinstance(row, Reject) and row.reason == "bad_encoding"), None)
    is_utf8 = any(not cell.isascii() for cells in rows if not isinstance(cells, Reject) for cell in cells)
    if bad and (bad is rows[0] or not is_utf8):  # in a list with letters in UTF-8, the line alone is damaged
        way = (
            ", or say how it is written: --encoding latin-1 (Western Windows: cp1252; Chinese: gb18030; a NUL at every "
            "other byte: utf-16-le)"
        )
        raise InputError(f"{name}, line {bad.line}: {bad.detail}; save the file as UTF-8{way * (encoding is not None)}")
    tables = [
        _table(mark, [cells for _, cells in rows if not isinstance(cells, Reject)]) for mark, rows in splits.items()
    ]
    best = max(
        tables,
        key=lambda one: (one.share > 0, one.fits > LEAST_FITS, one.share, one.width if one.fits <= LEAST_FITS else 0),
    )
    if not best.share:
        raise InputError(f"{name}: expected a table of two columns or more, found no delimiter that splits its rows")
    if best.fits < LEAST_FITS:
        other = next((mark for mark in MARKS[:-1] if len(best.top) == 1 and mark in best.top[0]), None)
        why = f" (line 1 is split by {WORDS[other]}, the rows by {WORDS[best.mark]})" if other else ""
        raise InputError(
            f"{name}: line 1 has {len(best.top)} cells, the rows below it {best.width}{why}: mend line 1, or delete "
            "what stands above the names of the columns"
        )
    _require_names_first(name, [best.top, *best.body])
    kept = best.body if best.heads else [best.top, *best.body]
    names = [cell.strip() for cell in best.top] if best.heads else []
    return Sample(best.mark, names, [cells for cells in kept if len(cells) == len(best.top)])


def _require_names_first(name: str, rows: Sequence[Sequence[str]]) -> None:
    """Refuse a title, or empty cells, above the names of three columns or more."""
    above = len([*takewhile(lambda cells: sum(1 for cell in cells if cell.strip()) < 2, rows)])
    names, *below = rows[above:] or [[]]
    if above and len(names) > 2 and all(map(str.strip, names)) and _names_columns(names, below):
        raise InputError(
            f"{name}: line 1 has one filled cell or none, the names of the columns stand below it: delete what stands "
            "above the names of the columns"
        )


class _Split(NamedTuple):
    mark: str
    top: list[str]
    body: list[list[str]]
    heads: bool  # whether the first row names columns
    width: int  # the most frequent of the rows
    share: float  # share of the rows of that width; 0 below two cells
    fits: float  # share of the rows as wide as the first


def _table(mark: str, rows: list[list[str]]) -> _Split:
    top, body = (rows[0], rows[1:]) if rows else ([], [])
    width, count = Counter(map(len, body or rows)).most_common(1)[0] if rows else (0, 0)
    heads = _names_columns(top, body)
    least = len(top)
    while heads and least > 1 and top[least - 1].strip().lower() in UNFILLED:
        least -= 1
    body = [fitted(cells, least, len(top)) for cells in body]
    fits = sum(len(cells) == len(top) for cells in body) / len(body) if body else 1.0
    return _Split(mark, top, body, heads, width, count / len(body or rows) if width > 1 else 0.0, fits)


def _names_columns(top: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row names columns: it differs from rows of numbers, clips or other words."""
    unlike = False
    for at, cell in enumerate(top):
        below = [cells[at] for cells in body[:50] if at < len(cells)]
        if not below or not cell.strip():
            continue
        if _is_name(cell) and sum(map(_is_name, below)) < 0.5 * len(below):
            return True
        unlike = unlike or any(
            sum(map(kind, below)) > 0.8 * len(below) and not kind(cell) for kind in (is_number, is_audio)
        )
    return unlike and not any(map(is_number, top))


def names_columns_too(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row holds names of columns and no number, unlike the row below it."""
    if len(rows) < 2 or any(map(is_number, rows[0])) or not any(map(is_number, rows[1])):
        return False
    return sum(map(_is_name, rows[0])) > 1


def _is_name(cell: str) -> bool:
    if is_audio(cell) or is_number(cell) or "/" in cell:
        return False
    name = read_name(cell)
    return name.rates or name.file is not None or any(map(name.holds, HOLDERS))
