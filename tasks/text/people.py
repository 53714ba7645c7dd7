"""Find people: names on platforms, names given by themselves, and street addresses."""

import re

from earmark.tasks.text.rules import CJK, DIGITS, Rule, Seen, words_of

HANDLE, NAME, STREET = "mention", "name of a person", "street address"

# Platforms with unambiguous names come first; the others are also words of music.
_PLATFORMS = (
    "instagram|insta|twitter|tiktok|tik tok|telegram|snapchat|facebook|youtube|soundcloud|bandcamp|twitch|skype"
    "|whatsapp|wechat|weixin|linkedin|github|mastodon|bluesky|tumblr|patreon|venmo|paypal|cash ?app|musescore|gamertag"
    "|reddit|discord|snap|kik|signal|steam|psn|xbox|ig|fb|yt|微信|薇信|v信|vx|qq"
)
_CHINESE = "微信|薇信|v信"  # a name may follow at once
_PLATFORM_WORDS = words_of(_PLATFORMS) | {"cashapp"}
_NOUN = r"(?:\s(?:user ?name|user|name|handle|account|acc|id|tag|profile|channel|page|alt)|(?:[账帐賬帳]?[号號])码?)"
_IS = r"(?:\s(?:is|was|as|me|at)(?:\s(?:called|named))?|'s|\s?(?::|：|=|-|–|—|->|→|@)|\s?[是为為叫])"
_SHAPE = rf"[A-Za-z](?:[^\W{CJK}]|[.-]){{2,40}}(?:#[0-9]{{4}})?"
_PLAIN = words_of(
    "the and but for not are was has had all any own out off full down back dead gone new old good bad here there this "
    "that then them they with from just also very really private public broken small great open closed linked below "
    "above resolved resolving called named where what when which who how you your our his her its their one two three"
)
_W = "[^0-9A-Za-z]"
_BAR = re.compile(r"(?i)@?(?:mm?|bars?|b|meas|measures?|beats?|bpm)\.?[0-9]*$")
_FIRST = r"[^\W\d_a-zß-öø-ÿ][\w'’-]{0,30}"  # starts with a capital letter
_NAME = rf"{_FIRST}(?:[ ]{_FIRST}\.?){{0,3}}"
_NOT_NAMES = frozenset(
    re.findall(
        r"\w+",
        "OP Reddit Everyone Everybody All Guys Folks You Again Mate Man Bach Mozart Haydn Beethoven Allegro Andante "
        "Presto Coda Fine",
    )
)
_STREETS = (
    "Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Close|Crescent|Terrace|Square|Sq|Highway|Hwy"
    "|Parkway|Pkwy|Alley|Mews|Gardens|Way|Row"
)
_TOWN = (
    r"(?:,? (?:Apt|Suite|Unit|Flat)\.? ?\w+)?(?:,? [0-9]{5} \w+|(?:, [A-Z][a-z][\w-]+){1,2}(?:,? [A-Z]{2} [0-9]{5})?)?"
)
_CITED = re.compile(r"(?i)(?:\b(?:bars?|mm?|no|nos|op|track|side|take|number|measures?|var)\b\.?|#) ?$")
_LIVES = re.compile(r"(?i)\b(?:live|lives|living|ship|send|mail|come|address|house|flat|lessons|home|visit|at)\b")
_POSTED = re.compile(r"(?i)(?:\b(?:post ?code|zip|address|live[sd]? (?:at|in))\W{1,3}|, ?[A-Z][\w ]{1,30}\s)$")


def _handle(seen: Seen) -> bool:
    """Return whether `@name` is a handle: not a bar, a tempo or an octave."""
    return bool(re.search("[A-Za-z]", seen.value)) and not _BAR.fullmatch(seen.value)


def _on_platform(seen: Seen) -> bool:
    """Return whether a word near a platform's name is an account: it looks generated, or is claimed as one's own."""
    value = seen.value.rstrip(".-")
    if value.lower() in _PLAIN or len(value) < 3:
        return False
    made_up = bool(re.search(r"[0-9_#]|\w\.\w|[a-z][A-Z]", value))
    own = re.search(
        r"(?i)\b(?:my|add me|follow me|find me|hmu|hit me up|dm me|message me)\b|我的|加我|加(?:微信|qq|vx)",
        seen.before,
    )
    named = re.search(
        r"(?i)(?:name|handle|id|tag|called|user)\W{1,4}$|@$|(?<!discord)(?<!snap)(?<!signal)[:：=]\s?$|[号號]码?\s?$",
        seen.before,
    )
    ends = re.match(rf"\s*(?:$|[,.;!?)\n，。；！？、）{CJK}]|and\b|for\b|if\b|on\b)", seen.behind)
    return made_up or bool(named and "-" in value) or bool((own or named) and ends)


def _own_name(seen: Seen) -> bool:
    words = seen.value.split()
    return words[0] not in _NOT_NAMES and not re.match(r"\s*(?:fans|lovers|players)\b", seen.behind)


def _lower_name(seen: Seen) -> bool:
    return seen.value.lower() not in _PLAIN | {"on", "in", "at", "a", "an", "it", "is"}


def _signed(seen: Seen) -> bool:
    """Return whether a last line with a dash is a signature, not an entry of a list."""
    lines = seen.before.rstrip(" -–—~\n").rsplit("\n", 1)
    listed = re.match(r"\s*(?:[-–—~*•]|[0-9]+[.)])", lines[-1]) is not None and "\n" in seen.before
    return not listed and _own_name(seen)


def _street(seen: Seen) -> bool:
    titled = all(word[:1].isupper() for word in re.findall("[A-Za-z]{4,}", seen.value.split(",")[0]))
    return not _CITED.search(seen.before) and (titled or bool(_LIVES.search(seen.before)))


MENTIONS: tuple[Rule, ...] = (
    Rule(HANDLE, r"(?i)(?<![\w/+=])/?(?:u|user)/[\w-]{3,64}", "(?i:u|user)/", marks=("u/", "user/")),
    Rule(HANDLE, r"(?i)(?<![\w/])/?r/u_[\w-]{1,64}", "(?i:r/u_)", marks=("r/u_",)),
    Rule(HANDLE, r"(?<![\w@])@[A-Za-z0-9_][\w.-]{1,63}(?:@[\w-]+(?:\.[\w-]+)+)?", "@", _handle, leaks=False),
    Rule(HANDLE, r"\b\w{2,32}#[0-9]{4}\b", "#[0-9]{4}", leaks=False),
    Rule(
        HANDLE,
        rf"(?i)(?<![A-Za-z0-9_])(?:(?:{_PLATFORMS})(?![A-Za-z0-9_])|{_CHINESE}){_NOUN}?{_IS}?\s?@?((?:live:)?{_SHAPE})",
        f"(?:^|{_W})(?i:{_PLATFORMS})(?:{_W}|$)|(?i:{_CHINESE})",
        _on_platform,
        words=_PLATFORM_WORDS,
        marks=(*_CHINESE.split("|"), "vx", "qq"),  # a word of Chinese text has no space around it
    ),
    Rule(
        HANDLE,
        r"(?i)(?<![A-Za-z0-9_])(?:qq|扣扣)(?:\s?群?[号號]?码?\s?(?:[:：=]|是)\s?|群?[号號]码?\s?|群\s?"
        rf"|\s?(?=[0-9]{{7,11}}(?! ?[A-Za-z0-9])))([1-9][0-9]{{4,10}})(?![^\W{CJK}]|[.-][0-9])",
        "(?i:qq|扣扣).{0,6}[0-9]{5}",
        marks=("qq", "扣扣"),
    ),
    Rule(
        HANDLE,
        rf"(?i)(?:\b(?:i'?m|i am|follow|add|dm|find me as|known as|message)\s)@?({_SHAPE})\s(?:on|over on|at|via)\s"
        rf"(?:my\s)?(?:{_PLATFORMS})\b",
        f"(?:^|{_W})(?i:{_PLATFORMS})(?:{_W}|$)",
        _lower_name,
        words=_PLATFORM_WORDS,
    ),
)
_INTRODUCED = (
    r"(?:my (?:full |real |first |last )?name(?:'s| is)|ich hei(?:ß|ss)e|mein name ist|je m'appelle|me llamo|mi chiamo"
    r"|mi nombre es|il mio nome è)"
)
_INTRODUCED_HINT = r"(?i:name's|name is|ich hei|name ist|m'appelle|me llamo|mi chiamo|nombre es|mio nome)"
_INTRODUCING = words_of("name heiße heisse appelle llamo chiamo nombre nome")
_FAREWELL = (
    r"(?:(?:best|kind|warm|many)?\s?(?:regards|wishes|thanks)|best|cheers|thank you|thanks[a-z ]{0,20}|sincerely"
    r"|yours(?: truly| sincerely)?|love|lg|vg|mfg|[a-zß ]{0,30}gr(?:ü|u)(?:ß|ss)en?|cordialement|saludos|saluti)"
)
_FAREWELL_HINT = (
    rf"(?i:(?:^|[\n.!?]){_W}{{0,3}}(?:best|kind|warm|many|regards|wishes|thank|cheers|sincerely|yours|love|lg|vg|mfg"
    "|cordialement|salu)|gr(?:ü|u)(?:ß|ss))"
)
_FAREWELLS = words_of("best kind warm many regards wishes thanks thank cheers sincerely yours love lg vg mfg")
_GREETINGS = ("cordialement", "saludos", "saluti", "grüß", "gruß", "grüss", "gruss")
NAMES: tuple[Rule, ...] = (
    Rule(NAME, rf"(?i:\b{_INTRODUCED})\s+({_NAME})", _INTRODUCED_HINT, words=_INTRODUCING),
    Rule(
        NAME,
        rf"(?i)\b{_INTRODUCED}\s+([^\W\d_]{{2,20}})(?=\s*(?:$|[,.!;\n]|and\b))",
        _INTRODUCED_HINT,
        _lower_name,
        words=_INTRODUCING,
    ),
    Rule(
        NAME,
        rf"\b(?:[Cc]all|calls) me ({_FIRST}(?: {_FIRST})?)(?=\s*(?:$|[,.!;\n]))",
        "(?:[Cc]all|calls) me [^a-z0-9 ]",
        marks=("call me ", "calls me "),
    ),
    Rule(
        NAME,
        rf"\b[Ii](?:'m| am) ({_FIRST} {_FIRST})(?=\s*(?:$|[,.!;\n]|from\b|and\b|here\b))",
        "[Ii](?:'m| am) [^a-z0-9 ]",
        marks=("i'm ", "i am "),
    ),
    Rule(
        NAME,
        rf"(?im:^{_FAREWELL}[,.!]{{0,2}}[ \t]*\n\s*)({_NAME})(?=[ \t]*(?:\n|$))",
        _FAREWELL_HINT,
        _own_name,
        words=_FAREWELLS,
        marks=_GREETINGS,
    ),
    Rule(
        NAME,
        rf"(?i:(?:^|[.!?]\s){_FAREWELL}[,!]\s)({_NAME})\s*$",
        _FAREWELL_HINT,
        _own_name,
        words=_FAREWELLS,
        marks=_GREETINGS,
    ),
    Rule(
        NAME,
        rf"(?i:\b(?:hi|hello|hey)[,!]?\s)({_NAME})(?= here\b)",
        rf"(?i:(?:^|{_W})(?:hi|hello|hey)[,!]?{_W}[^\n]* here)",
        marks=(" here",),
    ),
    Rule(
        NAME,
        rf"(?i:\bthis is )({_FIRST} {_FIRST})(?= (?:here|from|speaking)\b)",
        "(?i:this is )[^a-z0-9 ]",
        marks=("this is ",),
    ),
    Rule(NAME, rf"\n-- ?\n\s*({_NAME})", "\n-- ?\n"),
    Rule(
        NAME,
        rf"(?:\n\s*|[.!?)]\s)[-–—~]{{1,3}}\s?({_FIRST}(?: {_FIRST}){{0,2}})\s*$",
        rf"(?:\n|[.!?)]){_W}*[-–—~][^\n]*\s*$",
        _signed,
    ),
)
STREETS: tuple[Rule, ...] = (
    Rule(
        STREET,
        rf"(?<![\w.#-])([0-9]{{1,5}}[A-Za-z]?,? (?:(?:[NSEW]\.?|\w[\w'’-]*) )?"
        rf"(?:[A-Za-z][\w'’-]*|[0-9]{{1,3}}(?:st|nd|rd|th)) "
        rf"(?i:{_STREETS})\b\.?{_TOWN}(?: [A-Z]{{1,2}}[0-9][A-Z0-9]? [0-9][A-Z]{{2}})?)",
        f"[0-9][A-Za-z]?,? [A-Za-z0-9].{{0,60}} (?i:{_STREETS})",
        _street,
        words=words_of(_STREETS),
    ),
    Rule(
        STREET,
        r"\b(?:[^\W\d_a-z][\w-]*(?:straße|strasse|str\.|weg|gasse|allee|platz|ufer|damm)) [0-9]{1,4} ?[a-z]?\b"
        r"(?:,? [0-9]{5} \w+)?",
        r"(?:straße|strasse|str\.|weg|gasse|allee|platz|ufer|damm) [0-9]",
        marks=tuple(
            f"{end} " for end in ("straße", "strasse", "str.", "weg", "gasse", "allee", "platz", "ufer", "damm")
        ),
    ),
    Rule(
        STREET,
        r"(?i)\b[0-9]{1,4}(?: ?(?:bis|ter))?,? (?:rue|avenue|boulevard|chemin|allée|quai|impasse|place)"
        r" (?:de |du |des |d'|l')[\w'’ -]{2,40}(?:, [0-9]{5} \w+)?",
        "(?i:(?:rue|avenue|boulevard|chemin|allée|quai|impasse|place) (?:d|l'))",
        words=words_of("rue avenue boulevard chemin allée quai impasse place"),
    ),
    Rule(
        STREET,
        r"\b(?:Calle|Avenida|Avda\.|Plaza|Paseo|Via|Viale|Piazza|Corso) (?:[^\W\d_][\w'’-]+ ?){1,4},? ?[0-9]{1,4}\b"
        r"(?:, [0-9]{5} \w+)?",
        r"(?:Calle|Avenida|Avda\.|Plaza|Paseo|Via|Viale|Piazza|Corso) ",
        words=words_of("Calle Avenida Avda Plaza Paseo Via Viale Piazza Corso"),
    ),
    Rule(STREET, r"(?i)\bP\.? ?O\.? ?Box [0-9]+(?:, \w+)?", "(?i:O[.]? ?Box [0-9])", words=frozenset({"box", "pobox"})),
    Rule(
        STREET,
        r"\b([A-Z]{1,2}[0-9][A-Z0-9]? [0-9][ABD-HJLNP-UW-Z]{2})\b",
        "[A-Z][0-9][A-Z0-9]? [0-9][A-Z]{2}",
        lambda seen: bool(_POSTED.search(seen.before)),
        marks=DIGITS,
    ),
)
