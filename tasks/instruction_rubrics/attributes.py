"""List the changeable attributes of captions by domain, and draw their order for a caption."""

from typing import NamedTuple

from earmark.tasks.instruction_rubrics.deciding import draw

DROPPED, ORDER, ADDED = "dropped sound", "order", "added sound"
BY_READING = (DROPPED, ORDER)
"""Changes after which every word of a caption may stay true: only a reader notices the missing sound or the other
order."""


class Attribute(NamedTuple):
    """A changeable attribute: its name, the same in all languages, and its description in the caption's language."""

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
"""AnyAudio-Judge's attributes, in Earmark's words."""


def offered(seed: int, base: str, domain: str, language: str, *, full: bool) -> list[Attribute]:
    """Return a domain's attributes in a caption's own order, by hash; the first found in the caption is changed.

    Each attribute of the caption is thus equally likely, whatever a writer prefers. Sounds are dropped only from full
    captions: the gaps of others are unknown. The attribute fitting every caption comes last. `base` names
    clip and caption.
    """
    names = sorted((name for name in BY_DOMAIN[domain] if full or name != DROPPED),
                   key=lambda name: draw(seed, "attribute", base, name))  # fmt: skip
    return [Attribute(name, _WHAT[name][language == "zh"]) for name in (*names, ADDED)]
