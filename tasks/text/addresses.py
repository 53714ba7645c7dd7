"""Find network addresses: e-mail, also spelled out; links and hosts; IP."""

import ipaddress
import re
from functools import cache

from publicsuffixlist import PublicSuffixList

from earmark.tasks.text.rules import DIGITS, Rule, Seen, words_of

EMAIL, LINK = "e-mail address", "link"
_TOP = "com|org|net|edu|gov|info|biz|name|io|co|uk|de|at|ch|fr|es|nl|be|eu|ca|au|us|nz|jp|cn|ru|br|pl|se|dev|app"
_POT = "moc|gro|ten|ude|vog|ofni|zib|oi|oc|ku|ed|rf|se|ln|ue|ac|ua|pj|nc|ur|rb|lp|ved|ppa"  # the same, reversed
_MAILERS = "gmail|googlemail|hotmail|outlook|yahoo|icloud|proton(?:mail)?|gmx|aol|yandex|web\\.de"
_OPEN, _CLOSE = r"\s{0,2}[\[({<]\s?", r"\s?[\])}>]\s{0,2}"
_AT = rf"(?:{_OPEN}(?:at|a|@|ät|arroba){_CLOSE}|\s?@\s?|\s(?:at|ät|@t|arroba|at[- ]sign)\s|[-_]at[-_])"
_DOT = rf"(?:{_OPEN}(?:dot|d0t|\.|punkt|punto|point){_CLOSE}|\s[.·]\s|[.·]|\s(?:dot|d0t|punkt|punto)\s|[-_]dot[-_])"
_MAIL_CUE = re.compile(r"(?i)\b(?:e-?mails?|mail|write|reach|contact|adress|address|correo)\b")
_PLAIN_AT = re.compile(r"(?i)\sat\s")
_SPELT_DOT = re.compile(r"(?i)\b(?:dot|d0t|punkt|punto|point)\b|[\[({<]\s?\.|·")
_PLAIN_MAIL = re.compile(
    r"(?:\"[^\"\n@]{1,64}\"|(?<![A-Za-z0-9])[^\W_][\w.%+-]{0,63})@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}"
)
_PICTURES = ("png", "jpg", "jpeg", "gif", "webp", "svg", "wav", "mp3", "flac")

# Suffixes also used as words or file endings: "the tonic.it resolves", "score.ly". A path makes them hosts.
_WORDS = words_of(
    "ac ad ae al am an as at be bb by cc do fm go ha he hm id im in is it la li lt ma me mi mo ms mu my ne no of one "
    "or pm pn re sa se si so st tab to us vi we zip mov py sh md rs ps ly pl ai ml ad day do how like now play show "
    "best here you"
)


@cache
def _suffixes() -> PublicSuffixList:
    """Return the public suffixes shipped with the package; nothing is downloaded."""
    return PublicSuffixList(accept_unknown=False, only_icann=True)


def is_host(name: str, with_path: bool = False) -> bool:
    """Return whether a dotted name is a host below a public suffix, or below a suffix reserved for examples.
    `with_path` states whether a path follows; it distinguishes `bit.ly/abc` from `score.ly`."""
    labels = name.rstrip(".").split(".")
    top = labels[-1].lower()
    if len(labels) < 2 or not all(labels):
        return False
    if top not in ("example", "test", "invalid"):
        suffix = _suffixes().publicsuffix(name.lower())
        if suffix is None or suffix.count(".") + 1 >= len(labels):
            return False
    if with_path:
        return True
    own = labels[-2]
    # "the tonic.Music theory": a sentence beginning without a space
    sentence = labels[-1][:1].isupper() and not labels[-1].isupper() and not own[:1].isupper()
    return len(own) > 1 and not sentence and (top not in _WORDS or (len(labels) > 2 and len(labels[-2]) > 3))


def _somebodys_mail(seen: Seen) -> bool:
    name, _, host = seen.value.rpartition("@")
    return host.lower().rpartition(".")[2] not in _PICTURES and name.lower() not in ("git", "noreply", "no-reply")


def _spelt_mail(seen: Seen) -> bool:
    """Return whether a spelt address is meant: "mail anna at example.com", not "see it at example.com"."""
    value = seen.value
    if _PLAIN_MAIL.fullmatch(value):
        return _somebodys_mail(seen)
    return not _PLAIN_AT.search(value) or bool(_SPELT_DOT.search(value) or _MAIL_CUE.search(seen.before))


def _some_host(seen: Seen) -> bool:
    name, slash, _ = re.sub(r"(?i)\s?[\[(]\s?(?:dot|\.)\s?[\])]\s?|\sdot\s", ".", seen.value).partition("/")
    spelt = re.search(r"(?i)\sdot\s", seen.value)
    if spelt and not re.search(rf"(?i)\.(?:{_TOP})$", name):
        return False
    bare = re.split(r"[?#:]", name)[0]
    return is_host(bare, bool(slash) or bare != name)


def _public_address(seen: Seen) -> bool:
    """Return whether an address may be somebody's. Four small numbers are a version such as 4.1.2.0."""
    text = re.sub(r"(?i)\s?dot\s?|[\s\[\]()]", lambda match: "." if "dot" in match[0].lower() else "", seen.value)
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if address.version == 4 and (
        max(address.packed) < 32 or re.search(r"(?i)\b(?:v|versions?|release) ?$", seen.before)
    ):
        return False
    if address.version == 6 and not re.search(r"[0-9A-Fa-f]{3}", text):
        return False
    documented = address.is_private and not (address.is_loopback or address.is_link_local or address.is_unspecified)
    return not address.is_multicast and (address.is_global or (documented and not _is_local(text)))


def _is_local(text: str) -> bool:
    """Return whether an address is private, shared or reserved: nobody's outside its network."""
    inside = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "0.0.0.0/8", "240.0.0.0/4", "fc00::/7")
    address = ipaddress.ip_address(text)
    return any(address in net for net in map(ipaddress.ip_network, inside) if net.version == address.version)


_W = "[^0-9A-Za-z]"
_SPELT = (
    rf"@|(?i:[.·](?:{_TOP})|{_W}[.·]{_W}{{1,4}}(?:{_TOP})|(?:dot|d0t|punkt|punto|point){_W}{{1,4}}(?:{_TOP}))"
    "|[a-z0-9]AT[a-z0-9-]+DOT"
)
_SPELT_MARKS = tuple(
    "@ · [. (. {. <. dot d0t punkt punto point".split()  # noqa: SIM905
    + [" .", "\n.", "\t."]
    + [f".{top}" for top in _TOP.split("|")]
)
_MAILER_WORDS = words_of(_MAILERS.replace("web\\.de", "web")) | {"protonmail"}
_DOTTED = r"(?:\.|\s?[\[(]\.[\])]\s?|\s\.\s|\sdot\s)"
_DOTTED_HINT = rf"{_W}{{0,3}}(?:\.|dot){_W}{{0,3}}"

LINKS: tuple[Rule, ...] = (
    Rule(
        LINK,
        r"(?i)(?:\b[a-z][a-z0-9+.-]{1,15}://|\bwww\.|\bmailto:)[^\s<>\"]+",
        r"(?i:://|www\.|mailto:)",
        leaks=False,
        marks=("://", "www.", "mailto:"),
    ),
)
MAILS: tuple[Rule, ...] = (
    Rule(
        EMAIL, rf"(?i)\b(?:{_POT})\.[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{0,3}}@[\w.+-]{{1,64}}(?![\w.]*\.[a-z]{{2}})", "@"
    ),
    Rule(EMAIL, _PLAIN_MAIL.pattern, "@", _somebodys_mail),
    Rule(
        EMAIL,
        rf"(?i)(?<![\w.+-])[\w.+-]{{1,64}}(?:(?:\sdot\s|{_OPEN}dot{_CLOSE})[\w+-]{{1,32}}){{0,2}}{_AT}[\w-]{{1,63}}?"
        rf"(?:{_DOT}[\w-]{{1,63}}?){{0,3}}{_DOT}(?:{_TOP})(?![\w-]|\.\w)",
        _SPELT,
        _spelt_mail,
        marks=_SPELT_MARKS,
    ),
    Rule(EMAIL, rf"\b[A-Za-z0-9._-]{{2,64}}AT[a-z0-9-]{{2,63}}DOT(?:{_TOP})\b", "AT[a-z0-9-]+DOT"),
    Rule(EMAIL, r"(?<!\w)(?:[\w.] ){2,40}(?:@|at)(?: [\w-]){2,40} (?:[.]|dot)(?: [A-Za-z]){2,6}\b", " (?:@|at) [^ ] "),
    Rule(
        EMAIL,
        rf"(?i)(?<![\w.+-])([\w.+-]{{3,64}})\s?(?:@|\bat|\(at\)|\[at\])\s?(?:{_MAILERS})\b",
        f"(?i:{_MAILERS})",
        lambda seen: bool(re.search(r"[0-9._]", seen.value) or _MAIL_CUE.search(seen.before)),
        words=_MAILER_WORDS,
    ),
    Rule(
        EMAIL, rf"(?i)\b(?:{_MAILERS})(?:\sis|\s?[:=-])\s([\w.+-]{{4,64}})\b", f"(?i:{_MAILERS})", words=_MAILER_WORDS
    ),
)
HOSTS: tuple[Rule, ...] = (
    Rule(
        LINK,
        r"(?i)(?<![\w@.-])((?:[\w-]{1,63}(?:\.|\s?[\[(]\s?(?:dot|\.)\s?[\])]\s?|\sdot\s)){1,5}[^\W\d_][\w-]{1,62}"
        r"(?![\w-]|\.\w)(?:[/?#:][^\s<>\"]*)?)",
        rf"[^\s.]\.[^\s0-9_.][^\s.]|(?i:[\[(]{_W}?(?:dot|\.){_W}?[\])]|{_W}dot{_W})",
        _some_host,
        leaks=False,
    ),
)
IPS: tuple[Rule, ...] = (
    Rule(
        "IP address",
        rf"(?i)(?<![A-Za-z0-9_+.-])(?<![^/]/)([0-9]{{1,3}}(?:{_DOTTED}[0-9]{{1,3}}){{3}})(?![A-Za-z0-9_-]|\.\w)",
        rf"(?i:[0-9]{_DOTTED_HINT}[0-9]{{1,3}}{_DOTTED_HINT}[0-9])",
        _public_address,
        marks=DIGITS,
    ),
    Rule(
        "IP address",
        r"(?<![A-Za-z0-9:.])([0-9A-Fa-f]{1,4}:[0-9A-Fa-f:]{5,35})(?![A-Za-z0-9:])",
        "[0-9A-Fa-f]:[0-9A-Fa-f:]*:[0-9A-Fa-f]",
        _public_address,
    ),
)
