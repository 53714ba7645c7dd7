"""Find what a model writes in place of an answer: that it hears or sees nothing, or will not answer."""

import re

_QUOTED = re.compile(r"""(?<=[\w,:;]\s)(?:["“][^"”]*["”]|['‘].{0,300}?['’](?!\w))""")  # lyrics, and speech in a film
_END = (  # an answer goes on: "I hear no audio artefacts", "I cannot hear the music clearly"
    r"(?=\W*$|\s*[.!?;,:]|\s+(?:at all|attached|because(?! of)|but|clips?|content|data|directly|files?|here|itself|"
    r"in (?:the|this|your) (?:conversation|message|prompt|request)|provided|so|that (?:was|you)|to|you)\b)"
)
_MEDIUM = rf"(?:audio|clip|file|recording|attachment)s?\b{_END}"
_FILE = rf"(?:audio|sound|music|clip|file|recording|track|attachment)s?\b{_END}"
_THE = r"(?:(?:an?|any|the|this|that|these|your) )?(?:actual )?"
_NO = r"(?:n['’]t| not)"
_UNABLE = r"(?:unable to|not able to|can(?:not|['’]?t))"
_READ = r"(?:access|analy[sz]e|assess|describe|evaluate|hear|judge|listen to|load|open|play|process|read)"
_STOP = r"(?:\W*$|[.!?;]|, so\b)"
_SPOKEN = re.compile(
    r"^\W*I(?:['’]m| am)? (?:sorry|apologi[sz]e)\b|^\W*(?:sorry|(?:my )?apologies)\b,? (?:but|I|it|no|there|the)\b|"
    rf"\bI(?:['’]m| am| was)? {_UNABLE} (?:\w+ly )?(?:listen|process|access|assist|"
    r"help (?:you )?with|(?:play|open|hear|describe|analy[sz]e) "
    rf"(?:(?:the|this|that|your) {_FILE}|(?:any )?{_MEDIUM}))|"
    rf"\bI do{_NO} (?:have (?:the ability|access|(?:an?|any|the) {_FILE})|"
    rf"(?:see|find|hear) (?:(?:an?|any|the|your) )?{_MEDIUM})|"
    rf"\bplease (?:provide|upload|share|attach|send) (?:\w+ ){{0,3}}{_FILE}|"
    r"\bno (?:audio|clip|sound|recording|file)(?: (?:clip|file|data|was|is|has|seems|to|be|been|in|with|this|the|your))"
    r"{0,6} (?:attached|provided|included|conversation|message)|"
    rf"\b(?:audio|clip|file|recording) (?:was|is|has){_NO} (?:been )?(?:attached|provided|included|uploaded)|"
    r"\b(?:text|language)-based (?:ai|assistant|model)\b|"
    rf"\bas an? (?:[\w-]+ ){{0,3}}(?:ai|model|assistant)\b[^.!?]{{0,40}}(?:{_UNABLE}|\bdo{_NO} )|"
    rf"\bI (?:did{_NO} (?:receive|get)|have{_NO} (?:received|gotten)) {_THE}{_MEDIUM}|"
    rf"\bI (?:do{_NO}|can(?:not|['’]?t)) hear anything(?: at all)? (?:in|on|from) {_THE}{_FILE}{_STOP}|"
    rf"^\W*(?:h+m+\W+)?I (?:do{_NO}|can(?:not|['’]?t)) hear anything(?: at all)?\W*$|"
    rf"\b(?:the|this) (?:model|assistant) (?:can(?:not|['’]?t)|does{_NO}|is (?:unable|not able) to) (?:\w+ly )?"
    r"(?:accept|access|hear|listen|process|support)\b|"
    rf"^\W*without (?:\w+ly )?(?:hearing|having heard|listening to|access to) {_THE}{_FILE}|"
    rf"\baudio (?:input|file|format)s? (?:is|are){_NO} (?:currently )?supported\b|"
    rf"\b(?:audio|clip|file|recording|attachment) (?:did|does|has){_NO} (?:seem to )?(?:come|go|get) through{_STOP}|"
    rf"\b(?:audio|clip|file|recording) could{_NO} be (?:accessed|decoded|loaded|opened|played|read)\b|"
    rf"\baudio (?:file )?(?:is |was )?(?:unavailable|inaccessible|not available){_STOP}|"
    r"\b(?:attached|given|provided|supplied|uploaded) (?:audio|clip|file|recording) (?:is|was|appears|seems)"
    r"(?: to be)? (?:\w+ly )?(?:blank|corrupt(?:ed)?|empty|silent)\b|"
    r"\bI need (?:access to )?(?:the|an?|your) (?:actual )?(?:audio|clip|file|recording)s? (?:\w+ )?(?:to|before|so)\b|"
    rf"^\W*(?:unable|not able) to (?:\w+ly )?{_READ} {_THE}{_MEDIUM}|"
    r"^\W*(?:unable|not able|not possible|impossible) to (?:answer|assess|comment|compare|determine|evaluate|judge|say|"
    r"tell)\W*$|^\W*can(?:not|['’]t) (?:be )?(?:answer|assess|compare|determine|evaluate|judge)(?:e?d)?\W*$|"
    rf"(?:^|[.!?]\s)\W*I (?:wo(?:n['’]t)|will not|refuse to|must decline to) (?:answer|caption|compare|describe|"
    r"evaluate|help|provide|transcribe|write)\b|"
    r"\b(?:against|because of|due to|under|violates?|violating) (?:\w+ ){0,3}(?:content|safety|usage) polic(?:y|ies)\b|"
    r"^\W*(?:content|request|response) (?:was |has been )?blocked\b|"
    r"^\W*(?:not applicable|no (?:answer|assessment|comment|description))\W*$|"
    r"(?:无法|不能)(?:直接)?(?:收听|聆听|播放|访问|处理)\w{0,4}(?:音频|文件|录音|片段)",
    re.IGNORECASE,
)
_IMAGE = r"(?:attachment|excerpt|image|notation|picture|score|sheet music)s?\b"
_UNSEEN = re.compile(
    rf"\bI(?:['’]m| am)? {_UNABLE} (?:access|open|read|see|view) {_THE}(?:\w+ )?{_IMAGE}|"
    rf"\bI do{_NO} (?:have access|see (?:an?|any|the|your) (?:\w+ )?{_IMAGE})|"
    rf"^\W*(?:unable|not able) to (?:\w+ ){{1,4}}without\b|^\W*(?:unable|not able) to (?:read|see|view) {_THE}{_IMAGE}|"
    r"\bno (?:image|picture|score) (?:was |is )?(?:attached|provided|included)\b",
    re.IGNORECASE,
)
_SIGNS = (  # each refusal has one of these, folded, or is of an "AI": the search of an answer takes 40 times as long
    *(
        "sorry",
        "apolog",
        "unable",
        "not able",
        "cannot",
        "can't",
        "can’t",
        " cant ",
        "i do",
        "i did",
        "i have",
        "i need",
    ),
    *("i won", "i will", "i refuse", "i must", "model", "assistant", "please", "attached", "provided", "included"),
    *("uploaded", "conversation", "message", "hearing", "having", "listening", "access", "supported", "come through"),
    *("go through", "get through", "could", "available", "blank", "corrupt", "empty", "silent", "possible", "polic"),
    *("blocked", "not applicable", "no answer", "no assessment", "no comment", "no description", "无法", "不能"),
)
_AI = re.compile(r" ai\b")
_EMPTY = re.compile(r"^\W*(?:n\s*/\s*a|to[ -]do)\W*$", re.IGNORECASE)
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+(?:['’/.-][^\W_]+)*"
)  # signs of Chinese have no blanks between


def unquoted(text: str) -> str:
    """Return a text without what it quotes: lyrics, or speech."""
    return _QUOTED.sub(" ", text)


def find_refusal(text: str, *, of_image: bool = False) -> str | None:
    """Return the words by which a text refuses to answer, outside quotes; None for an answer.

    A fault that is told is an answer: "I cannot hear any distortion", "no sound in the pauses".

    Args:
        text: an answer, or a field of one.
        of_image: whether the model was shown an image, so that words of an unseen one count.
    """
    plain = unquoted(text)
    folded = plain.replace("İ", "i").replace("ı", "i").casefold()  # `re.IGNORECASE` takes both for an i
    if not any(sign in folded for sign in _SIGNS) and not _AI.search(folded):
        return None
    found = _SPOKEN.search(plain) or (_UNSEEN.search(plain) if of_image else None)
    return found[0].strip() if found else None


def count_words(text: str) -> int:
    """Return the number of words; none in a placeholder."""
    return 0 if _EMPTY.match(text) else len(_WORD.findall(text))
