"""Classify column names as labs write them: `systemId`, `system_id` and `Answer.system` alike.

A name is the list of its words in small letters. Words show a column's content; a column counts as ratings only
if no other word contradicts it (`rating_time`, `score_std`, `listener_quality_id`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_WORD = re.compile(r"[A-ZÀ-Þ]+(?![a-zß-ÿ])|[A-ZÀ-Þ]?[a-zß-ÿ]+|\d+|[^\W\d_A-Za-zÀ-ÿ]+")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


# Words without meaning of their own: `listenerId` and `nameListener` hold the listener, `Answer.quality` the quality.
_FILLERS = word_set(
    "id ids uuid guid pid name names nr no number num code key label input answer url path filepath file the of"
)

RATINGS = word_set(
    "mos cmos dmos smos score scores rating choice opinion quality naturalness intelligibility similarity likability "
    "likeability pleasantness preference expressiveness enjoyment usefulness complexity musicality alignment relevance "
    "impression overall ovr ovrl grade stars rank ranking annoyance impairment mushra acr "
    "bewertung urteil qualität qualitaet natürlichkeit natuerlichkeit verständlichkeit schulnote note punkte rang "
    "évaluation qualité naturel jugement puntuación puntuacion calificación valoración calidad naturalidad nota "
    "punteggio voto valutazione qualità naturalezza pontuação avaliação qualidade oordeel kwaliteit "
    "оценка качество естественность 评分 得分 分数 打分 质量 自然度 音质 評価 点数 評点 自然性 音質 "
    "평점 점수 품질 자연성"
)
# Words for a rating if only fillers and words of this set stand beside them.
_ALONE = word_set("mean average avg value response slider mittelwert moyenne media 平均")
_NO_RATING = word_set(
    "id ids uuid age alter âge edad count counts n num nr no number index idx order position pos time timestamp date "
    "rt duration dur ms sec secs seconds std sd stdev sem se var variance ci ci95 low high min max lower upper votes "
    "listener rater participant subject worker user annotator judge assessor session trial block page comment comments "
    "gender sex year years experience played plays playcount clicks volume started stopped submitted attention trap "
    "gold control check predicted pred prediction scale reference ref stimulus file wav random seed rep thisn hit "
    "assignment reward approval percent lifetime 编号 时间 年龄 数量 次数 标准差 年齢 時間 回数 番号 번호 시간 "
    "나이 횟수"
)

HOLDERS: Mapping[str, str] = {
    "listener": "listener rater annotator worker subject judge user participant assessor evaluator respondent proband "
    "vpn hörer hoerer bewerter teilnehmer versuchsperson participante oyente evaluador auditeur évaluateur ascoltatore "
    "слушатель 听众 评测员 被试 被験者 評価者 聴取者 평가자 청취자 prolific email",
    "system": "system systems sys model method codec algorithm engine vocoder generator tts systeme système modell "
    "verfahren sistema modelo modèle система 系统 模型 方法 システム モデル 手法 시스템 모델",
    "speaker": "speaker singer voice spk sprecher locuteur hablante parlante диктор 说话人 歌手 话者 話者 화자",
    "content": "content text sentence phrase prompt transcript transcription cluster utt utterance ref reference "
    "original song passage item satz texto frase phrase текст 文本 句子 文 텍스트",
    "condition": "condition con snr degradation bedingung",
    "subset": "subset test experiment track study db database",
    "split": "split partition fold",
}
_FILES = _words(
    "file filename wav wavname path audio clip stimulus stimuli stim sample recording sound utt utterance url deg "
    "degraded aufnahme datei audiodatei fichier archivo grabación enregistrement файл 音频 文件 音声 ファイル 파일"
)
_REFERENCES = word_set("ref reference original orig source src clean anchor gt target")
_EXACT: Mapping[str, frozenset[str]] = {
    "votes": frozenset(
        ["votes", "n votes", "num votes", "ratings", "n ratings", "num ratings", "rating count", "count", "n"]
    ),
    "mos_std": frozenset(["mos std", "std", "score std", "rating std", "stdev", "sd", "mos sd", "mos stdev"]),
    "subset": frozenset({"session test id"}),
    "content": frozenset({"content cluster"}),
    "listener": frozenset({"name listener", "session uuid", "response id"}),
    "system": frozenset({"tts system"}),
}
QUESTIONS = word_set("question dimension attribute aspect criterion measure metric task frage scale axis item")
LOW_IS_GOOD = word_set("rank ranking rang annoyance impairment")
MAY_BE_LOW = word_set("grade note nota schulnote")


def _meant(words: Iterable[str], known: frozenset[str]) -> bool:
    """Return whether a word is known; scripts without spaces may write it inside a longer word."""
    return any(word in known or (word[0] > "\u2fff" and any(one in word for one in known)) for word in words)


class ColumnName(NamedTuple):
    """The words of a column's name, with their meaning."""

    words: tuple[str, ...]

    @property
    def rates(self) -> bool:
        """Return whether the column's name suggests ratings."""
        if self.words in (("answer",), ("rating", "response")):
            return True
        if _meant(self.words, _NO_RATING):
            return False
        rest = {word for word in self.words if word not in _FILLERS and not word.isdecimal()}
        return _meant(rest, RATINGS) or (bool(rest) and rest <= _ALONE)

    @property
    def core(self) -> tuple[str, ...]:
        """Return the words with meaning."""
        return tuple(word for word in self.words if word not in _FILLERS) or self.words

    def holds(self, what: str) -> bool:
        """Return whether the column holds a listener, system, …: its only meaningful word names the kind."""
        text = " ".join(self.words)
        if text in _EXACT.get(what, ()):
            return True
        return len(self.core) == 1 and _meant(self.core, word_set(HOLDERS.get(what, "")))

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
    return ColumnName(tuple(word.lower() for word in _WORD.findall(name)))
