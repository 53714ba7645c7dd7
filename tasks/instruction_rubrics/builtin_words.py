"""Define words about audio in English and Chinese for rules to change, ask about and look up; a small list.

Each group holds mutually exclusive words of a dimension: swapping a word for another makes a caption wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from earmark.tasks.text.bilingual import HAN, Language

_ALL = ("speech", "sound", "music", "mixed")
_MUSIC, _SPEECH, _SOUND = ("music", "mixed"), ("speech", "mixed"), ("sound", "mixed")

GROUPS: tuple[tuple[tuple[str, str], tuple[str, ...], tuple[tuple[str, str], ...]], ...] = (
    (("tempo", "速度"), _MUSIC, (("slow", "缓慢"), ("fast", "快速"), ("moderate", "中速"))),
    (
        ("mood", "情绪"),
        _MUSIC,
        (("happy", "欢快"), ("sad", "悲伤"), ("calm", "平静"), ("tense", "紧张"), ("dreamy", "梦幻"), ("dark", "阴暗")),
    ),
    (
        ("genre", "流派"),
        _MUSIC,
        (
            ("rock", "摇滚"), ("jazz", "爵士"), ("folk", "民谣"), ("techno", "科技舞曲"), ("blues", "蓝调"),
            ("classical", "古典"), ("ambient", "氛围音乐"), ("reggae", "雷鬼"), ("electronic", "电子"), ("pop", "流行"),
        ),
    ),
    (
        ("instrument", "乐器"),
        _MUSIC,
        (
            ("piano", "钢琴"), ("guitar", "吉他"), ("violin", "小提琴"), ("flute", "长笛"), ("trumpet", "小号"),
            ("saxophone", "萨克斯"), ("cello", "大提琴"), ("drums", "鼓"), ("bass", "贝斯"), ("strings", "弦乐"),
            ("synthesizer", "合成器"), ("organ", "管风琴"), ("harp", "竖琴"),
        ),
    ),
    (("structure", "结构"), _MUSIC, (("intro", "前奏"), ("chorus", "副歌"), ("verse", "主歌"), ("outro", "尾奏"))),
    (("production", "制作"), _MUSIC, (("clean", "干净"), ("distorted", "失真"), ("muffled", "沉闷"))),
    (("key", "调性"), _MUSIC, (("major", "大调"), ("minor", "小调"))),
    (("voice", "人声"), _ALL, (("female", "女声"), ("male", "男声"))),
    (("speaker", "说话人"), _SPEECH, (("woman", "女人"), ("man", "男人"), ("child", "孩子"))),
    (
        ("accent", "口音"),
        _SPEECH,
        (("british", "英国口音"), ("american", "美国口音"), ("scottish", "苏格兰口音"), ("cantonese", "粤语")),
    ),
    (
        ("emotion", "情感"),
        _SPEECH,
        (("angry", "愤怒"), ("cheerful", "开心"), ("sorrowful", "难过"), ("nervous", "紧张不安"), ("bored", "无聊")),
    ),
    (("age", "年龄"), _SPEECH, (("young", "年轻"), ("elderly", "年老"))),
    (("pace", "语速"), _SPEECH, (("slowly", "慢慢"), ("quickly", "很快"))),
    (("pitch", "音高"), _SPEECH, (("high", "高"), ("low", "低"))),
    (
        ("source", "声源"),
        _SOUND,
        (
            ("dog", "狗"), ("cat", "猫"), ("bird", "鸟"), ("car", "汽车"), ("train", "火车"), ("horse", "马"),
            ("rain", "雨"), ("wind", "风"), ("thunder", "雷"), ("siren", "警笛"), ("bell", "铃"), ("waves", "海浪"),
            ("crowd", "人群"), ("engine", "引擎"), ("door", "门"),
        ),
    ),
    (
        ("place", "地点"),
        _SOUND,
        (("street", "街道"), ("kitchen", "厨房"), ("forest", "森林"), ("station", "车站"), ("beach", "海滩")),
    ),
    (("order", "顺序"), _SOUND, (("before", "之前"), ("after", "之后"))),
    (("order", "顺序"), _SOUND, (("first", "首先"), ("finally", "最后"))),
    (("intensity", "强度"), _ALL, (("loud", "响亮"), ("quiet", "轻声"), ("soft", "柔和"))),
    (("number", "数量"), _ALL, (("two", "两"), ("three", "三"), ("four", "四"), ("five", "五"))),
)  # fmt: skip
"""Names of the dimension in both languages; domains of the rule; words excluding one another."""

OTHERS: tuple[tuple[str, str], ...] = (
    ("acoustic guitar", "原声吉他"), ("electric guitar", "电吉他"), ("beats per minute", "拍每分钟"),
    ("ballad", "抒情曲"), ("song", "歌曲"), ("piece", "乐曲"), ("melody", "旋律"), ("rhythm", "节奏"), ("beat", "节拍"),
    ("music", "音乐"), ("sound", "声音"), ("sounds", "声音"), ("voice", "嗓音"), ("speaks", "说话"), ("speech", "讲话"),
    ("sings", "演唱"), ("singing", "演唱"), ("barks", "吠叫"), ("barking", "吠叫"), ("sings", "歌唱"),
    ("passes", "驶过"), ("rings", "响起"), ("falls", "落下"), ("blows", "吹"), ("steady", "平稳"), ("bright", "明亮"),
    ("warm", "温暖"), ("deep", "低沉"), ("instrumental", "器乐"), ("tempo", "速度"), ("mood", "情绪"), ("city", "城市"),
    ("background", "背景"), ("tone", "音色"), ("noise", "噪声"), ("plays", "演奏"), ("tune", "曲调"), ("first", "先是"),
    ("sound", "声"), ("then", "然后是"), ("not", "不"), ("no", "没有"),
    ("without", "没有"), ("never", "从不"), ("and", "和"),
    ("with", "伴有"), ("then", "然后"), ("while", "同时"), ("followed by", "随后是"), ("played", "演奏"),
    ("by", "由"), ("low hum", "低鸣"), ("hum", "嗡嗡声"), ("six", "六"), ("seven", "七"),
)  # fmt: skip
"""Further words of the phrase book."""

_WORD = re.compile(r"[a-z0-9]+(?:['’][a-z]+)?|[\u3400-\u4dbf\u4e00-\u9fff]+", re.IGNORECASE)
_LITTLE = frozenset(
    re.findall(
        r"\w+",
        "a an the of is are was were be it its to at on in by as and or with for from that this there which who whose "
        "has have having heard hear can you your clip audio does do s",
    )
)


@dataclass(frozen=True, slots=True)
class GroupWord:
    """A word of `GROUPS` in a text."""

    start: int  # start, end: its place
    end: int
    word: str  # as in the group
    dimension: str  # of the group, in the text's language
    others: tuple[str, ...]  # its possible replacements
    domains: tuple[str, ...]  # domains of the rule for changing it


def attribute_of(dimension: str) -> str:
    """Return the attribute of a group's dimension, given in either language."""
    english = next((en for (en, zh), _, _ in GROUPS if dimension in (en, zh)), dimension)
    return {"voice": "gender", "speaker": "gender", "number": "source", "key": "structure"}.get(english, english)


def named_in(text: str, language: Language) -> list[GroupWord]:
    """Return the words of `GROUPS` in a text, in its order; of nested words the longest."""
    named: list[GroupWord] = []
    for (english, chinese), domains, words in GROUPS:
        terms = tuple(pair[0 if language == "en" else 1] for pair in words)
        for term in terms:
            others = tuple(other for other in terms if other != term)
            for start, end in _places(text, term, language):
                named.append(GroupWord(start, end, term, english if language == "en" else chinese, others, domains))
    named.sort(key=lambda one: (one.start, -one.end))
    kept: list[GroupWord] = []
    for one in named:
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return kept


def content(text: str) -> set[str]:
    """Return a text's content as comparable units: English words without endings, Chinese words of the list, else pairs
    of Chinese characters."""
    units: set[str] = set()
    for piece in _WORD.findall(text.lower()):
        if not HAN.match(piece):
            if piece not in _LITTLE:
                units.add(_stem(piece))
            continue
        left = piece
        for term in _CHINESE:
            if term in left:
                units.add(term)
                left = left.replace(term, " ")
        for run in left.split():
            units |= {run[at : at + 2] for at in range(max(1, len(run) - 1))}
    return units


def phrase_book(text: str, into: Language) -> str:
    """Translate word for word through the list: missing words stay in Chinese, and become `[?]` in English."""
    if into == "zh":
        words = text
        for english, chinese in _BY_LENGTH_EN:
            words = re.sub(rf"\b{re.escape(english)}\b", chinese, words, flags=re.IGNORECASE)
        words = re.sub(r"\b(?:an?|the|is|are|of)\b ?", "", words, flags=re.IGNORECASE)
        return re.sub(r"(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])", "", " ".join(words.split()))
    words = text
    for english, chinese in _BY_LENGTH_ZH:
        words = words.replace(chinese, f" {english} ")
    words = re.sub(r"[\u3400-\u4dbf\u4e00-\u9fff]+", " [?] ", words.replace("的", " "))
    words = words.translate(str.maketrans("，。、；：！？“”（）", ',.,;:!?""()'))
    return re.sub(r"\s+([,.;:!?])", r"\1", " ".join(words.split()))


def _places(text: str, term: str, language: Language) -> Iterator[tuple[int, int]]:
    pattern = rf"\b{re.escape(term)}\b" if language == "en" else re.escape(term)
    for match in re.finditer(pattern, text, re.IGNORECASE):
        yield match.span()


def _stem(word: str) -> str:
    for ending in ("ing", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


_PAIRS = tuple(pair for _, _, words in GROUPS for pair in words) + OTHERS
_BY_LENGTH_EN = sorted(_PAIRS, key=lambda pair: (-len(pair[0]), pair))
_BY_LENGTH_ZH = sorted(_PAIRS, key=lambda pair: (-len(pair[1]), pair))
_CHINESE = sorted({pair[1] for pair in _PAIRS}, key=lambda term: (-len(term), term))
