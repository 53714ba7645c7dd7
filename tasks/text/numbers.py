"""Find personal numbers: telephone, bank card, bank account, social security."""

from __future__ import annotations

import re

import phonenumbers
from phonenumbers import NumberParseException, PhoneNumberFormat

from earmark.tasks.text.rules import DIGITS, Rule, Seen

# Countries with national formats recognised without a cue word.
_COUNTRIES = ("US", "GB", "AU", "FR", "DE", "NL", "IT", "ES", "IN", "JP")
_CUE = re.compile(
    r"(?i)(?:\b(?:call|phone|tel|telephone|telefon|mobile|cell|text|sms|dial|ring|whatsapp|fax|landline"
    r"|reach|contact|hotline"
    r"|handy|ruf|anrufen|num[ée]ro|nummer|appelle|portable|m[óo]vil|digits"
    r"|my number|number'?s|number is)\b|[☎📞]|电话|手机|联系)"
)
_NO_CUE = re.compile(r"(?i)(?:\bis[bsm]n[ :]*(?:[0-9-]*)|[\w.]*[0-9][-.,/])$")
_ONE_DIGIT = "zero|oh|one|two|three|four|five|six|seven|eight|nine"
_GAP = r"[ .()/\-‐-―−]"
_AMERICAN = re.compile(r"(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}-)[0-9]{3}-[0-9]{4}")
_CARD = re.compile(r"4|5[1-5]|2[2-7]|3[47]|36|38|35|6(?:011|4|5|2)")


def _national(text: str) -> bool:
    """Return whether a number is valid in a country, its digits in the usual groups; American numbers also unbroken."""
    groups = re.findall("[0-9]+", text)
    for country in _COUNTRIES:
        try:
            number = phonenumbers.parse(text, country)
        except NumberParseException:
            continue
        if not phonenumbers.is_valid_number(number):
            continue
        usual = re.findall("[0-9]+", phonenumbers.format_number(number, PhoneNumberFormat.NATIONAL))
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
    if _NO_CUE.search(seen.before):
        return False
    if _AMERICAN.fullmatch(text):
        return True
    cue = bool(_CUE.search(seen.before) or _CUE.search(seen.behind))
    if cue and (len(groups) <= 5 or re.search(r"(?i)(?:phone|tel|mobile|cell|fax)[^\w]{1,3}$", seen.before)):
        return True
    return len(digits) >= 9 and (not text.isdigit() or _in_words(seen)) and _national(text)


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
        rf"(?<![A-Za-z0-9_=+/.-])(\+ ?\(?[1-9]{_GAP}{{0,2}}[0-9](?:{_GAP}{{0,2}}[0-9]){{5,13}})(?!\w)",
        r"\+[^0-9A-Za-z]{0,2}[1-9][^0-9A-Za-z]{0,2}[0-9](?:[^0-9A-Za-z]{0,2}[0-9]){5}",
        _dialled,
    ),
    Rule("phone number", rf"(?<![A-Za-z0-9_+])(\(?[0-9](?:{_GAP}{{0,3}}[0-9]){{6,15}})(?!\w)", _HINT, _dialled),
    Rule(
        "phone number",
        rf"(?i)\b((?:double |triple )?(?:{_ONE_DIGIT}|o)"
        rf"(?:[ ,-]{{1,2}}(?:double |triple )?(?:{_ONE_DIGIT}|o)){{6,14}})\b",
        f"(?i:(?:^|[^0-9A-Za-z_])(?:{_ONE_DIGIT}|o)(?:[ ,-]{{1,2}}(?:{_ONE_DIGIT}|o|double|triple)){{3}})",
        _spoken,
        words=frozenset({"zero", "oh", "o"}),
    ),
)
