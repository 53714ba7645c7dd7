"""Distinguish Chinese and English texts, and find negation and quoted speech in them."""

import re
from typing import Literal

HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_DOUBLE = str.maketrans("“”„‟«»", '"' * 6)
_STRAIGHT = _DOUBLE | str.maketrans("‘’‚‛′", "'" * 5)
_QUOTED = re.compile(r"『[^』]+』|「[^」]+」|\"[^\"]+\"|‘(?:[^‘’]|’(?=\w))+’|(?<!\w)'[^']+'(?!\w)")
_EN_NEGATION = re.compile(
    r"\b(?:no|not|never|none|neither|nor|without|cannot|\w+n't|non|nobody|nothing|nowhere|hardly|scarcely|"
    r"lack(?:s|ed|ing)?|absen(?:t|ce)|devoid|free (?:of|from)|fail(?:s|ed|ing)? to|unable)\b",
    re.IGNORECASE,
)
_EN_OTHER = re.compile(
    r"\bnot (?:only|just|merely)\b|\bno (?:doubt|matter|wonder)\b|\b(?:whether )?or not\b|\bno\. ?(?=\d)", re.IGNORECASE
)
_ZH_QUESTION = re.compile(r"[是能有可会]否|(.)不\1|有没有")
_ZH_NEGATION = re.compile(r"[不没無无未别非]|缺[乏少]|[切请]勿")
_ZH_OTHER = re.compile(  # words containing these characters without negation
    "[特分区區个個差级識识类類告性派鉴鑒辨离離国國判辞送作道甄临臨拜永阔闊诀惜饯霸]别|千差万别|天壤之别|"
    "别(?:人|的(?!说|再)|处|名|墅|扭|国|致|号|称|样|具|有|出心裁|开生面|家|院|字|针|传|于|离)|"
    "[是莫除東东西南北中黑似亚亞]非|非(?:常|洲|凡|但|得|典|要|同|议|分之想)|啼笑皆非|面目全非|想入非非|胡作非为|"
    "[淹沉吞埋隐湮覆籍罚浸出]没|没(?:收|药|入|落|想到|事|关系|完没了)|神出鬼没|全军覆没|"
    "未(?:来|免|婚|知数|成年|央)|前所未(?:有|闻|见)|方兴未艾|意犹未尽|"
    "[万獨独]无[一二]失?|[回意]味无穷|[毫]无疑[问义]|至高无上|一览无余|"
    "无(?:论|比|限|数|疑|尽|穷|边|线|奈|形|辜|声|聊|情|力|私|畏|敌|常|色|尘|所谓|与伦比|微不至|[处时]不[在有]|忧无虑|"
    "拘无束|精打采|端|机|菌|言|垠|暇|助|休止|损|序|调性|人机|产)|無(?:論|比|限|數|疑|盡|窮|邊|線|奈|形|聲|聊|情)|"
    "不(?:仅|僅|但|过|過|断|斷|同|久|少|论|論|管|禁|停|住|由|时|時|已|止|错|錯|得不|得了|懈|休|觉|觉得|朽|凡|安|满|滿|"
    "幸|良|利|便|适|悦|祥|妙|均|羁|屈|平|料|规则|規則|稳定|穩定|协和|協和|和谐|和諧|对称|平衡|寻常|好意思|可思议|"
    "可避免|可或缺|耐烦|计其数|约而同|由自主|紧不慢|慌不忙|知不觉|如说|妨|光|仅仅|只(?!是)|外乎|失为|愧|乏|绝)|"
    "忍不住|禁不住|差不多|说不定|對不起|对不起|了不起|必不可少|与众不同|各不相同|一动不动|接连不断|层出不穷|川流不息|"
    "要不是|要不然|恨不得|怪不得|迫不及待|时不时|动不动"
)

Language = Literal["en", "zh"]


def straight(text: str) -> str:
    """Return a text with straight quotes for curly and angled ones, character by character."""
    return text.translate(_STRAIGHT)


def without_speech(text: str) -> str:
    """Return a text without its quoted parts; the whole text if nothing else is left."""
    rest = straight(_QUOTED.sub(" ", text.translate(_DOUBLE)))
    return rest if re.search(r"\w", rest) else text


def language_of(text: str) -> Language:
    """Return `zh` for a text with more Chinese characters than Latin words outside quotes, else `en`."""
    own = without_speech(text)
    return "zh" if len(HAN.findall(own)) > len(re.findall(r"[A-Za-z]+", own)) else "en"


def is_other_language(text: str, language: str) -> bool:
    """Return whether a text is plainly in the other language; names and genres of up to two words fit both."""
    if language == "en":  # almost no English text has a Chinese character, and to look for quotes takes longer
        return bool(HAN.search(text)) and language_of(without_speech(text)) == "zh"
    own = without_speech(text)
    return not HAN.search(own) and len(re.findall(r"[A-Za-z]+", own)) > 2


def quotes(text: str) -> list[str]:
    """Return the quoted parts of a text."""
    return [straight(one[1:-1]) for one in _QUOTED.findall(text.translate(_DOUBLE))]


def negates(text: str, language: str) -> bool:
    """Return whether a text has a negation outside quoted speech."""
    own = without_speech(text)
    if language == "en":
        return bool(_EN_NEGATION.search(_EN_OTHER.sub(" ", own)))
    return bool(_ZH_NEGATION.search(_ZH_OTHER.sub(" ", _ZH_QUESTION.sub("", own))))
