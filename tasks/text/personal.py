"""Find personal data and secrets in a text, by a list of rules for scrubbing and for the search before publishing.

Rules see a folded text (`fold`) and mark places in the original. Text found by a rule is hidden from later rules.
`hint` is a pattern for RE2 (in DuckDB, over whole columns) matching each text with findings, so that other texts never
enter Python. The aim is few false alarms, not a proof of absence.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby

from earmark.tasks.text.addresses import HOSTS, IPS, LINKS, MAILS
from earmark.tasks.text.people import MENTIONS, NAMES, STREETS
from earmark.tasks.text.rules import CJK, DIGITS, FoldedText, Rule, Seen, words_of

# Countries with national formats recognised without a cue word.
_COUNTRIES = ("US", "GB", "AU", "FR", "DE", "NL", "IT", "ES", "IN", "JP")
_CUE = re.compile(
    r"(?i)(?:\b(?:call|phone|tel|telephone|telefon|mobile|cell|text|sms|dial|ring|whatsapp|fax|landline"
    r"|reach|contact|hotline"
    r"|handy|ruf|anrufen|num[ée]ro|nummer|appelle|portable|m[óo]vil|digits"
    r"|my number|number'?s|number is)\b|[☎📞]|电话|電話|手机|手機|联系|聯[絡繫]|致电|拨打|短信|微信)"
)
_NO_CUE = re.compile(r"(?i)(?:\bis[bsm]n[ :]*(?:[0-9-]*)|[\w.]*[0-9][-.,/])$")
_ONE_DIGIT = "zero|oh|one|two|three|four|five|six|seven|eight|nine"
_GAP = r"[ .()/\-‐-―−]"
_AMERICAN = re.compile(r"(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}-)[0-9]{3}-[0-9]{4}")
_YEARS = re.compile(r"\(?(1[0-9]{3}|20[0-3][0-9]) ?[-‐-―−/] ?(1[0-9]{3}|20[0-3][0-9])")
_DATE = re.compile(
    r"\(?[12][0-9]{3}([-./])(?:0?[1-9]|1[0-2])\1(?:0?[1-9]|[12][0-9]|3[01])(?: [0-2]?[0-9])?"
)  # and an hour
# The end of a number: Chinese may follow at once, but neither a counted thing nor a part of a date.
_END = rf"(?![^\W{CJK}]|[年月日号號次个個元页頁首拍秒分时時小])"
_CHINESE_MOBILE = re.compile(r"1[3-9][0-9]([ -]?)[0-9]{4}\1[0-9]{4}")
_ID = re.compile(r"(?:[号號单單编編第量数數]|[^号號][码碼])\W{0,2}$")
_CARD = re.compile(r"4|5[1-5]|2[2-7]|3[47]|36|38|35|6(?:011|4|5|2)")


def _national(text: str) -> bool:
    """Return whether a number is valid in a country, its digits in the usual groups; American numbers also unbroken."""
    import phonenumbers  # imported here, as it takes 30 ms and few texts need it

    groups = re.findall("[0-9]+", text)
    for country in _COUNTRIES:
        try:
            number = phonenumbers.parse(text, country)
        except phonenumbers.NumberParseException:
            continue
        if not phonenumbers.is_valid_number(number):
            continue
        usual = re.findall("[0-9]+", phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.NATIONAL))
        without = [group for group in groups[:1] if group == "1"] if country == "US" else []
        if groups[len(without) :] == usual or (len(groups) == 1 and country == "US"):
            return True
    return False


def _dialled(seen: Seen) -> bool:
    """Return whether digits are a telephone number: international, in a national format, or near a cue word."""
    text = seen.value
    digits = re.sub("[^0-9]", "", text)
    groups = re.findall("[0-9]+", text)
    if not 7 <= len(digits) <= 15 or (text.count(".") == 1 and len(groups) == 2 and len(digits) != 7):
        return False
    if text.startswith("+"):
        return len(digits) >= 8 and len(groups[0]) <= 13
    years = _YEARS.fullmatch(text)
    if _DATE.fullmatch(text) or (years and years[1] <= years[2]):
        return False
    if _NO_CUE.search(seen.before):
        return False
    if _AMERICAN.fullmatch(text):
        return True
    cue = bool(_CUE.search(seen.before) or _CUE.search(seen.behind))
    if cue and (len(groups) <= 5 or re.search(r"(?i)(?:phone|tel|mobile|cell|fax)[^\w]{1,3}$", seen.before)):
        return True
    if _CHINESE_MOBILE.fullmatch(text) and _in_chinese(seen):
        return True
    apart = len(digits) >= 9 and (not text.isdigit() or _in_words(seen))
    return apart and ((digits.startswith("00") and _international(text)) or _national(text))


def _in_chinese(seen: Seen) -> bool:
    """Return whether digits stand beside Chinese text that does not call them an id."""
    beside = re.search(rf"[{CJK}]\W{{0,2}}$", seen.before) or re.match(rf"\W{{0,2}}[{CJK}]", seen.behind)
    return bool(beside) and not _ID.search(seen.before) and not re.match(r"\.\w| ?[次个個]", seen.behind)


def _international(text: str) -> bool:
    """Return whether a number that begins with 00 is valid in the country of its code."""
    import phonenumbers

    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(text.lstrip("(").replace("00", "+", 1)))
    except phonenumbers.NumberParseException:
        return False


def _in_words(seen: Seen) -> bool:
    """Return whether unbroken digits are among words: a row's id or a file's size in bytes is not a phone number."""
    return bool(re.search(r"[a-z,.] $", seen.before) or re.match(r"\W{1,2}[A-Za-z]", seen.behind)) and not re.search(
        r"[:=]\W{0,2}$", seen.before
    )


def _spoken(seen: Seen) -> bool:
    """Return whether spelled-out digits are a number: near a cue word, with a zero among them, unlike counted beats."""
    return bool(_CUE.search(seen.before) and re.search(r"(?i)\b(?:zero|oh|o)\b", seen.value))


def _card(seen: Seen) -> bool:
    """Return whether digits are a bank card's: an issuer's prefix, and Luhn's check."""
    digits = [int(char) for char in seen.value if char.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    known = _CARD.match("".join(map(str, digits)))
    if seen.value.isdigit() and not (seen.before + seen.behind).strip():
        return False  # a text of digits alone is an id
    return bool(known) and 13 <= len(digits) <= 19 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _account(seen: Seen) -> bool:
    """Return whether an IBAN's check holds: letters as numbers, head moved behind, remainder 1 by 97 (ISO 13616)."""
    text = re.sub("[^0-9A-Z]", "", seen.value.upper())
    return 15 <= len(text) <= 34 and int("".join(str(int(char, 36)) for char in text[4:] + text[:4])) % 97 == 1


def _social(seen: Seen) -> bool:
    area, group, serial = seen.value[:3], seen.value[-6:-4].strip("-. "), seen.value[-4:]
    labelled = re.search(r"(?i)\b(?:ssn|social(?: security)?(?: number| no\.?| #)?)\b", seen.before + " " + seen.behind)
    plain = re.fullmatch("[0-9]{3}-[0-9]{2}-[0-9]{4}", seen.value)
    return area not in ("000", "666") and group != "00" and serial != "0000" and bool(labelled or plain)


_HINT = "(?:^|[^0-9A-Za-z_])[0-9](?:[^0-9A-Za-z]{0,3}[0-9]){6}"
NUMBERS: tuple[Rule, ...] = (
    Rule(
        "bank card",
        r"(?<![A-Za-z0-9_.+-])(?:[0-9]{4}(?:[ .-]?[0-9]{4}){2}[ .-]?[0-9]{1,7}"
        r"|3[0-9]{3}[ .-]?[0-9]{6}[ .-]?[0-9]{4,5})(?![\w-])",
        _HINT,
        _card,
    ),
    Rule(
        "bank account",
        # in small letters only with spaces: else it is a hash
        r"(?<![A-Za-z0-9_])(?:[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,4})?"
        r"|[A-Za-z]{2}[0-9]{2}(?:[ -][A-Za-z0-9]{4}){2,7}(?:[ -][A-Za-z0-9]{1,4})?)(?![A-Za-z0-9_])",
        "(?i:[A-Z][A-Z][0-9][0-9](?:[ -]?[A-Z0-9]{4}){2})",
        _account,
        marks=DIGITS,
    ),
    Rule("social security number", r"(?<![\w.+-])[0-9]{3}[-. ]?[0-9]{2}[-. ]?[0-9]{4}(?![\w-])", _HINT, _social),
    Rule(
        "phone number",
        rf"(?<![A-Za-z0-9_=+/.-])(\+ ?\(?[1-9]{_GAP}{{0,2}}[0-9](?:{_GAP}{{0,2}}[0-9]){{5,13}}){_END}",
        r"\+[^0-9A-Za-z]{0,2}[1-9][^0-9A-Za-z]{0,2}[0-9](?:[^0-9A-Za-z]{0,2}[0-9]){5}",
        _dialled,
    ),
    Rule("phone number", rf"(?<![A-Za-z0-9_+])(\(?[0-9](?:{_GAP}{{0,3}}[0-9]){{6,15}}){_END}", _HINT, _dialled),
    Rule(
        "phone number",
        rf"(?i)\b((?:double |triple )?(?:{_ONE_DIGIT}|o)"
        rf"(?:[ ,-]{{1,2}}(?:double |triple )?(?:{_ONE_DIGIT}|o)){{6,14}})\b",
        f"(?i:(?:^|[^0-9A-Za-z_])(?:{_ONE_DIGIT}|o)(?:[ ,-]{{1,2}}(?:{_ONE_DIGIT}|o|double|triple)){{3}})",
        _spoken,
        words=frozenset({"zero", "oh", "o"}),
    ),
)


def _mixed(seen: Seen) -> bool:
    """Return whether a word has letters and digits, like generated keys and unlike words."""
    return any(c.isdigit() for c in seen.value) and any(c.isalpha() for c in seen.value)


_SET = r"[\"']?\s?[:=]\s?[\"']?"
_NAMED = r"api[_ -]?key|secret[_ -]?key|access[_ -]?token|auth[_ -]?token|account[_ -]?key|secret[_ -]?access[_ -]?key"

KEYS: tuple[Rule, ...] = (
    Rule("private key", r"-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY", "PRIVATE KEY"),
    Rule("Hugging Face token", r"\bhf_[A-Za-z0-9]{30,}", "hf_"),
    Rule("OpenAI or Anthropic key", r"\bsk-[A-Za-z0-9_-]{20,}", "sk-", _mixed),
    Rule("AWS key", r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b", "AKIA|ASIA"),
    Rule("GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})", "gh[pousr]_|github_pat_"),
    Rule("GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,}", "glpat-"),
    Rule(
        "Google key",
        r"\b(?:AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})",
        r"AIza|ya29\.|GOCSPX-",
    ),
    Rule("Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}", "xox[abeoprs]-", _mixed),
    Rule("Stripe key", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{20,}", "k_live_|k_test_"),
    Rule("PyPI token", r"\bpypi-AgEI[A-Za-z0-9_-]{50,}", "pypi-"),
    Rule("npm token", r"(?:\b|_)npm_[A-Za-z0-9]{36,}", "npm_"),
    Rule("Twilio key", r"\b(?:AC|SK)[0-9a-f]{32}\b", "(?:AC|SK)[0-9a-f]{8}"),
    Rule("SendGrid key", r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}", r"SG\."),
    Rule(
        "Discord token",
        r"\b[MNO][A-Za-z0-9_-]{23,26}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,42}",
        r"[A-Za-z0-9_-]{8}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{8}",
        _mixed,
    ),
    Rule("Telegram token", r"\b[0-9]{8,10}:[A-Za-z0-9_-]{35}\b", "[0-9]{8}:[A-Za-z0-9_-]{8}", _mixed, marks=DIGITS),
    Rule("JSON web token", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", "eyJ"),
    Rule("password in a URL", r"\b[a-z][a-z0-9+.-]{1,12}://[^\s/:@\"']{1,64}:([^\s/:@\"']{3,})@", "://"),
    Rule(
        "password or key",
        rf"(?i)(?<![A-Za-z0-9])(?:{_NAMED}|password|passwd)\b{_SET}([A-Za-z0-9+/_.~=-]{{12,}})",
        f"(?i:{_NAMED}|passw)",
        _mixed,
        words=words_of(
            "api secret access auth account apikey secretkey accesstoken authtoken accountkey password passwd"
        ),
    ),
    Rule(
        "password or key",
        rf"\b[A-Z][A-Z0-9_]{{0,40}}_(?:KEY|TOKEN|SECRET|PASSWORD){_SET}([A-Za-z0-9+/_.~=-]{{16,}})",
        "_(?:KEY|TOKEN|SECRET|PASSWORD)",
        _mixed,
    ),
    Rule("bearer token", r"(?i)\bbearer ([A-Za-z0-9._~+/-]{20,})", "(?i:bearer )", _mixed, marks=("bearer ",)),
)


HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
)
_TAGS = "\U000e0000-\U000e007f"  # letters without a glyph in any font
_MARKS = "\u0300-\u036f"  # accents and strokes on the preceding letter
# Letters of other scripts similar to Latin ones; the same position in both strings.
_LOOK_ALIKES = str.maketrans(
    "абвгеіїјкмноөрсѕтухԁһԛԝѵӏАВЕЅІЈКМНОРСТУХԌԜҮ" + "αβγεικνορτυχωΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" + "İıɑɡɩᴀᴄᴇᴏᴜ\u1680\u2028\u2029\x85",
    "a6breiijkmhoopcstyxdhqwvlABESIJKMHOPCTYXGWY" + "aByeikvoptuxwABEZHIKMNOPTYX" + "Iiaglaceou    ",
)
# Compatible with ASCII, and common in honest text: an ellipsis, and the punctuation of Chinese.
_KEPT = frozenset("…‥，：；（）！？～")
_PLANES = ((0x80, 0xD800), (0xE000, 0x10000), (0x1D400, 0x1D800), (0x1F100, 0x1F200), (0x1FBF0, 0x1FBFA))


@dataclass(frozen=True, slots=True)
class Folded:
    """A text in its folded form.

    Attributes:
        starts: for each of its characters, and for its end, the position in the original; None if both are equal.
    """

    text: str
    starts: tuple[int, ...] | None

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Return the original's span of a non-empty span of the folded text."""
        if self.starts is None:
            return start, end
        return self.starts[start], max(self.starts[end], self.starts[end - 1] + 1)


def fold(text: str) -> Folded:
    """Return a text with compatible and look-alike characters as ASCII (NFKC, then a map), without hidden ones and
    loose accents. Characters without an ASCII form stay, so that words of other scripts keep their positions."""
    if text.isascii():
        return Folded(text, None)
    parts: list[str] = []
    starts: list[int] = []
    at = 0
    for match in _altered().finditer(text):
        plain = _plain(match[0])
        parts += (text[at : match.start()], plain)
        starts += (*range(at, match.start()), *[match.start()] * len(plain))
        at = match.end()
    if not parts:
        return Folded(text, None)
    parts.append(text[at:])
    starts += range(at, len(text) + 1)
    return Folded("".join(parts), tuple(starts))


@cache
def disguises() -> str:
    """Return the inside of a character class, for `re` and RE2, with all characters changed by `fold`."""
    return HIDDEN + _TAGS + _MARKS + "".join(_ranges(_disguised()))


@cache
def _altered() -> re.Pattern[str]:
    return re.compile(rf"[^{_MARKS}][{_MARKS}]+|[{disguises()}]", re.DOTALL)


def _plain(char: str) -> str:
    """Return a character, or a letter with its accents, as ASCII; itself without such a form."""
    whole = unicodedata.normalize("NFKC", char)
    if len(whole) > 1:
        whole = re.sub(f"[{_MARKS}]", "", whole)
    return re.sub(f"[{HIDDEN}{_TAGS}{_MARKS}]", "", whole.translate(_LOOK_ALIKES))


def _disguised() -> Iterator[int]:
    for low, high in _PLANES:
        for code in range(low, high):
            char = chr(code)
            if ord("\u0300") <= code <= ord("\u036f") or char in _KEPT:
                continue
            whole = unicodedata.normalize("NFKC", char)
            if (whole != char and whole.isascii()) or code in _LOOK_ALIKES:
                yield code


def _ranges(codes: Iterable[int]) -> Iterator[str]:
    """Yield runs of codes as `a-z`."""
    for _, numbered in groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0]):
        run = [chr(code) for _, code in numbered]
        yield run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}"


ID = "id of a forum"
_IDS = (
    Rule(
        ID,
        r"(?i)\bt[1-6]_[a-z0-9]{3,12}\b",
        "(?i:t[1-6]_)",
        leaks=False,
        marks=tuple(f"t{kind}_" for kind in range(1, 7)),
    ),
)
RULES: tuple[Rule, ...] = (*KEYS, *LINKS, *MAILS, *IPS, *HOSTS, *MENTIONS, *_IDS, *NUMBERS, *STREETS, *NAMES)
LEAKS: tuple[Rule, ...] = tuple(rule for rule in RULES if rule.leaks)
_TAKEN = "\0"  # replaces found text; a link goes on over it


@dataclass(frozen=True, order=True)
class Place:
    """A personal or secret part of a text."""

    start: int  # its first character, in the original
    end: int  # the character after its last
    kind: str  # its kind of content


def find(text: str | Folded, rules: Sequence[Rule] = RULES) -> list[Place]:
    """Return the places of personal data and secrets in a text, in order; rules apply in order. Overlapping places,
    such as a link and the password in it, are one, of the first one's kind."""
    folded = fold(text) if isinstance(text, str) else text
    view, left = FoldedText(folded.text), folded.text
    places = []
    for rule in rules:
        for start, end in list(rule.spans(left)) if rule.may(view) else ():
            places.append(Place(*folded.original(start, end), rule.kind))
            left = left[:start] + _TAKEN * (end - start) + left[end:]
    merged: list[Place] = []
    for place in sorted(places, key=lambda one: (one.start, -one.end)):
        if merged and place.start < merged[-1].end:
            merged[-1] = replace(merged[-1], end=max(merged[-1].end, place.end))
        else:
            merged.append(place)
    return merged


def hint(rules: Sequence[Rule] = RULES) -> str:
    """Return a pattern for RE2 and `re`, matching each text with findings by these rules."""
    return "|".join([*dict.fromkeys(rule.hint for rule in rules), f"[{disguises()}]"])


@dataclass(frozen=True)
class Scanner:
    """Scanner for texts unfit for publication; it ignores links and mentions, intended in cards and captions."""

    secrets: Mapping[str, str] = field(default_factory=dict)  # values secret here, by name

    @property
    def hint(self) -> str:
        """Return a pattern for RE2, matching all texts with findings."""
        return "|".join([hint(LEAKS), *(re.escape(value) for value in self.secrets.values())])

    def findings(self, text: str) -> Iterator[tuple[str, str]]:
        """Return kind and value of all parts of a text unfit for publication."""
        for name, secret in self.secrets.items():
            if secret in text:
                yield f"the value of {name}", secret
        for place in find(text, LEAKS):
            yield place.kind, text[place.start : place.end]


def own_secrets(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the secrets of this process's environment, of any form."""
    named = re.compile(r"(?:^|_)(?:(?:API)?KEY|AUTH_STRING|TOKEN|SECRET|PASSWORD)$")
    return {name: value for name, value in environment.items() if named.search(name) and len(value) >= 12}
