"""Chinese and English: quoted speech is another's, words deny and signs do not, quotes of any form are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.instruction_rubrics.checks import lost, perturbation_fault, translation_fault, usable_items
from earmark.tasks.text.bilingual import Language, is_other_language, language_of, negates, without_speech
from earmark.tasks.text.numbers import differing

CHINESE_YES = (
    "没有人声 无人声 不是男声 未使用鼓 非人声音乐 别出声 缺乏低音 几乎听不见 并非爵士 不要鼓 节奏不快 请勿说话"
)
CHINESE_NO = (
    "特别温柔的女声 鼓点不断加快 与前一段不同的旋律 未来感十足的合成器 非洲鼓的节奏 非常欢快 性别分明的二重唱 "
    "是否有鼓声？ 是不是男声？ "
    "不仅有钢琴，还有小提琴 无论如何都很欢快 无人机的嗡嗡声 别致的旋律 渐渐淹没在雨声中 "
    "差不多一分钟 无比悲伤 不时传来鸟鸣 毫无疑问是爵士 "
    "男子说：“别走，我没有时间。”"
)


@pytest.mark.parametrize("text", CHINESE_YES.split(" "))
def test_chinese_words_that_deny(text: str) -> None:
    assert negates(text, "zh")


@pytest.mark.parametrize("text", CHINESE_NO.split(" "))
def test_chinese_words_with_a_sign_of_denial_deny_nothing(text: str) -> None:
    assert not negates(text, "zh")


@pytest.mark.parametrize(
    "text",
    ["It lacks drums", "devoid of bass", "free of vocals", "It isn’t loud", "an absence of bass", "hardly heard"],
)
def test_english_words_that_deny(text: str) -> None:
    assert negates(text, "en")


@pytest.mark.parametrize(
    "text", ["Not only piano but strings", "Nocturne no. 2", 'He shouts "no way"', "He says ‘I won’t’"]
)
def test_english_that_denies_nothing(text: str) -> None:
    assert not negates(text, "en")


@pytest.mark.parametrize(
    ("chinese", "english"),
    [
        (
            "旁白低声念道“床前明月光，疑是地上霜”，背景为古筝。",
            "A narrator recites “床前明月光，疑是地上霜” over a guzheng.",
        ),
        ("女子说：“你别走，我有三句话。”", "A woman says: “你别走，我有三句话。”"),
        ("没有鼓声。", "It lacks drums."),
        ("十分悲伤的弦乐四重奏，四周有回声。", "A very sad string quartet; echoes all around."),
        ("二胡与三角铁，持续十分钟。", "An erhu and a triangle, for ten minutes."),
    ],
)
def test_a_faithful_translation_has_lost_nothing(chinese: str, english: str) -> None:
    for text, language, other, into in ((chinese, "zh", english, "en"), (english, "en", chinese, "zh")):
        assert (translation_fault([text], into, [other]), lost(text, language, other, into)) == (None, [])


FAITHFUL = """
A song of 1985 at 120 BPM in 3/4 | 1985年的歌曲，每分钟120拍，四三拍
From the 1980s | 八十年代的
From the nineteen eighties | 20世纪80年代的
In the nineteenth century, nineteen eighty-five | 十九世纪，一九八五年
Twenty-four violins, two hundred and fifty singers | 二十四把小提琴，两百五十名歌手
10,000 people cheer for half a minute at 44.1 kHz | 一万人欢呼半分钟，44.1千赫
A pair of guitars and a string quartet in twos and threes | 两把吉他与弦乐四重奏，三三两两
Three or four dogs, hundreds of birds, a dozen drums | 三四只狗，数百只鸟，十二面鼓
Beethoven's Fifth: the second voice enters after 2.5 seconds | 贝多芬第五交响曲：第二个声音在2.5秒后进入
Electronic music of the twenty-first century, the twenty-fifth symphony | 21世纪的电子音乐，第25交响曲
Three and a half minutes, two and a half beats | 3.5分钟，2.5拍
One and a half times the speed for 30 seconds | 1.5倍速，半分钟
In the early 2000s and the 1800s | 21世纪初和19世纪
At 8 PM | 20点
Noise at 20,000 Hz and a tone of 5000 Hz | 2万赫兹的噪声和5千赫的纯音
Verses one and two, a voice between two and three minutes | 第一段和第二段，两分钟到三分钟之间的人声
Two, three or four voices in six-eight time | 两个、三个或四个声部，六八拍
Five twenty-second clips | 五个20秒的片段
2 billion plays, twelve million listeners | 20亿次播放，一千二百万听众
A 90-second loop | 一分半钟的循环
A minute and a half of rain | 90秒的雨声
A bell rings at 3:30 PM | 下午三点半响起钟声
110 million plays, 0.11 billion likes | 1.1亿次播放，1.1亿个赞
Between one hundred and two hundred voices, 1,000 billion bells | 一百到两百个人声，一万亿口钟
50% of the drums, for 24 hours | 一半的鼓，持续一整天
One hundred and twenty-four bells, two thousand, three hundred birds | 一百二十四口钟，两千三百只鸟
A 12-bar blues in triple metre with eighth notes | 三拍子的十二小节布鲁斯，有八分音符
"""
UNFAITHFUL = """
At 120 BPM | 每分钟一百拍
A tune of 1985 | 1975年的曲子
In 6/8 time | 四三拍
A piano | 1. 钢琴 2. 小提琴
A chorus | 12人合唱
A three-minute song at 180 BPM | 一首三分钟的歌
A 2-minute song, 120 BPM | 2分钟的歌
A one-hour show | 60小时的演出
A day of rain | 24天的雨
"""


@pytest.mark.parametrize("pair", FAITHFUL.strip().splitlines())
def test_numbers_are_the_same_in_digits_and_words_of_both_languages(pair: str) -> None:
    english, chinese = pair.split(" | ")
    assert differing(english, "en", chinese, "zh") == differing(chinese, "zh", english, "en") == []


@pytest.mark.parametrize("pair", UNFAITHFUL.strip().splitlines())
def test_a_figure_that_a_translation_loses_or_adds_is_asked_again(pair: str) -> None:
    english, chinese = pair.split(" | ")
    for fault in (translation_fault([chinese], "en", [english]), translation_fault([english], "zh", [chinese])):
        assert fault is not None
        assert (fault.reason, "numbers" in fault.detail) == ("not_translated", True)


def test_a_number_word_that_a_translation_loses_or_adds_is_flagged() -> None:
    for english, chinese in (
        ("Three guitars", "两把吉他"),
        ("Guitars", "三把吉他"),
        ("Two and three bells", "五口钟"),
        ("Twenty drums", "鼓"),
    ):
        assert lost(english, "en", chinese, "zh") == lost(chinese, "zh", english, "en") == ["numbers"]
        assert translation_fault([english], "zh", [chinese]) is None


@given(st.text(alphabet="零一二十百千万年代世纪 0123456789.,", max_size=400), st.sampled_from(["en", "zh"]))
def test_numbers_of_any_text_are_its_own(text: str, language: Language) -> None:
    english = "hundred " * len(text)
    assert differing(text, language, text, language) == differing(english, "en", english, "en") == []


def test_speech_that_is_translated_too_is_flagged_in_both_directions() -> None:
    """AnyAudio-Judge, section 3: what is spoken in the audio is left as it is."""
    chinese, english = "男子大喊“快跑！”", 'A man shouts "Run away now!"'
    assert lost(chinese, "zh", english, "en") == lost(english, "en", chinese, "zh") == ["speech"]
    assert lost("男子大喊“快跑！”", "zh", "A man shouts “快跑！”", "en") == []


def test_what_only_quotes_the_other_language_is_not_translated() -> None:
    fault = translation_fault(["A man says “好”."], "zh", ["A man says “好”."])
    assert fault is not None
    assert fault.reason == "not_translated"


def test_a_song_s_title_is_kept_by_a_translation() -> None:
    assert lost('She covers "Blue Moon" on piano', "en", "她用钢琴演奏", "zh") == ["names"]


def test_curly_and_straight_quotes_are_the_same() -> None:
    caption = "A man says “go” and it’s loud."
    value = {"attribute": "loudness", "before": "it's loud", "after": "it's quiet", "also": ()}
    assert perturbation_fault(caption, value | {"caption": 'A man says "go" and it\'s quiet.'}, ["loudness"]) is None
    kept, dropped = usable_items(caption, [{"basis": 'says "go"', "question": "Is go said?"}])
    assert (len(kept), dropped) == (1, [])


@pytest.mark.parametrize(
    ("text", "language", "other"),
    [
        ("一位女士平静地说话。", "en", True),
        ('A woman says "你好你好你好你好你好".', "en", False),
        ("A woman speaks calmly.", "zh", True),
        ("Lo-fi", "zh", False),
        ("歌手翻唱 Let It Be Me Now And Then", "zh", False),
    ],
)
def test_a_caption_in_the_other_language(text: str, language: str, other: bool) -> None:
    assert is_other_language(text, language) == other


def test_a_text_that_is_a_quote_alone_has_its_language() -> None:
    assert language_of("“你好”") == "zh"


@given(st.text(alphabet="ab 鼓琴的'\"“”‘’「」『』", max_size=40))
def test_an_english_text_is_the_other_language_by_its_own_words_alone(text: str) -> None:
    assert is_other_language(text, "en") == (language_of(without_speech(text)) == "zh")
