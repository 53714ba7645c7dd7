"""`instruction-rubrics`: what of a caption may be changed, by domain, and in which order a caption is offered it."""

from __future__ import annotations

from typing import NamedTuple

from earmark.tasks.instruction_rubrics.deciding import draw

DROPPED, ORDER, ADDED = "dropped sound", "order", "added sound"
BY_READING = (DROPPED, ORDER)
"""Changes after which no word of a caption need be false: a reader, not a listener, tells that something is missing or
in another order."""


class Attribute(NamedTuple):
    """One that may be changed: its name, the same in all languages, and what it is in the caption's."""

    name: str
    what: str


_WHAT = {
    "accent": ("accent or dialect", "口音或方言"),
    "emotion": ("the emotion of a voice", "说话的情绪"),
    "age": ("the age of a speaker", "说话人的年龄"),
    "gender": ("whether a man or a woman is heard", "说话人的性别"),
    "pace": ("how fast somebody speaks", "语速"),
    "pitch": ("how high a voice is", "音高"),
    "style": ("the manner of speaking", "说话风格"),
    "source": ("what makes a sound", "声音的来源"),
    "place": ("where it is heard", "地点"),
    "intensity": ("how loud or strong a sound is", "声音的强度"),
    ORDER: ("which event comes first", "事件的先后顺序"),
    DROPPED: ("leave out a secondary sound; replace its words by nothing", "删去一个次要的声音，不以别的文字代替"),
    "genre": ("the genre", "流派"),
    "instrument": ("an instrument", "乐器"),
    "tempo": ("the tempo", "速度"),
    "mood": ("the mood", "情绪氛围"),
    "structure": ("how the piece is built", "曲式结构"),
    "production": ("how it was recorded or mixed", "录音与制作"),
    ADDED: (
        "name one more sound that would be plain to hear, and is not there",
        "增加一个本应清楚听到、实际没有的声音",
    ),
}
BY_DOMAIN = {
    "speech": ("accent", "emotion", "age", "gender", "pace", "pitch", "style"),
    "sound": ("source", "place", "intensity", ORDER, DROPPED),
    "music": ("genre", "instrument", "tempo", "mood", "structure", "production"),
    "mixed": ("gender", "emotion", "source", "place", "intensity", ORDER, DROPPED, "genre", "instrument", "mood"),
}
"""AnyAudio-Judge's attributes, in words of ours."""


def offered(seed: int, base: str, domain: str, language: str, *, full: bool) -> list[Attribute]:
    """The attributes of a domain in an order of the caption's own, by hash: the first that the caption has is changed.

    So each that it has is as likely as another, whatever comes to a writer's mind first. A sound is dropped of full
    captions alone: of others nobody knows what they leave out. Last comes what every caption can have. `base` names
    clip and caption.
    """
    names = sorted((name for name in BY_DOMAIN[domain] if full or name != DROPPED),
                   key=lambda name: draw(seed, "attribute", base, name))  # fmt: skip
    return [Attribute(name, _WHAT[name][language == "zh"]) for name in (*names, ADDED)]
