"""Formatted identifiers: patterns of bounded length, and checks of what they match.

A row of `IDENTIFIERS` is an identifier; a new one is a row. Numbers of which one in ten passes the check (a checksum of
one digit) need groups as they are usually written, or a word that names them before.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

from bertkit.errors import UsageError

Check = Callable[[str], bool]

_START = r"(?:(?<![^\W_].)(?<!\\.)|(?<=\\[nrtbf].)|(?<=\\u[0-9a-fA-F]{4}.)|(?<=\\.)(?<![nrtbfu]))"
"""After its first character: where a word begins, also after an underscore or an escaped character, as in JSON. (`re`
looks for a class of characters faster than for what is before them.)"""

_END = r"(?![^\W_])"

CONTEXT = 48
"""Characters before a match in which a word may name it."""

SEPARATORS = " -./()\u00a0\u2009\u202f\u2010\u2011\u2013"
"""Characters at which a match is shortened until it is valid."""


@dataclass(frozen=True)
class Identifier:
    """An identifier that a pattern describes.

    Attributes:
        kind: name in placeholders.
        pattern: matches at most `longest` characters.
        longest: of the pattern, in characters.
        is_valid: check of a match, such as its checksum.
        words: if any, one of them must stand among the `CONTEXT` characters before, with no digit between.
        starts: a pattern that matches at least where `pattern` does, faster and often shared; None: `pattern` itself.
        contents: if any, one of them is in every match.
    """

    kind: str
    pattern: re.Pattern[str]
    longest: int
    is_valid: Check = bool
    words: re.Pattern[str] | None = None
    starts: re.Pattern[str] | None = None
    contents: tuple[str, ...] = ()


def identifier(
    kind: str,
    first: str,
    rest: str,
    longest: int,
    is_valid: Check = bool,
    *,
    words: str = "",
    starts: re.Pattern[str] | None = None,
    contents: tuple[str, ...] = (),
) -> Identifier:
    """An `Identifier` that begins and ends with words.

    Args:
        first: pattern of its first character.
        rest: pattern of the others.
    """
    named = re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])\D*\Z", re.IGNORECASE) if words else None
    pattern = re.compile(f"{first}{_START}(?:{rest}){_END}", re.DOTALL)
    return Identifier(kind, pattern, longest, is_valid, named, starts, contents)


_NUMBER = re.compile(rf"\d{_START}(?=(?:[+{SEPARATORS}]{{0,3}}\d){{5}})".replace("-./", r"\-./"))
"""Where a number of six or more digits begins."""


def number(kind: str, rest: str, longest: int, is_valid: Check, *, first: str = r"\d", words: str = "") -> Identifier:
    """An `identifier` that begins with at least six digits."""
    return identifier(kind, first, rest, longest, is_valid, words=words, starts=_NUMBER)


@cache
def library(module: str, package: str) -> Any:
    """A module of the extra `redact`.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"redaction needs {package}: pip install 'bertkit[redact]'") from error


def standard_number(module: str) -> Check:
    """The check of a module of python-stdnum."""
    return partial(_is_valid, f"stdnum.{module}")


def _is_valid(module: str, text: str) -> bool:
    return library(module, "python-stdnum").is_valid(_NO_SPACES.sub("", text))


_NO_SPACES = re.compile(r"[^\w+-]")  # a sign may tell the century


def _is_card(text: str) -> bool:
    """A payment card: a length and first digits that are issued, and the checksum of Luhn (ISO/IEC 7812)."""
    digits = re.sub(r"\D", "", text)
    return (
        _CARD.fullmatch(digits) is not None
        and len(set(digits)) > 1
        and library("stdnum.luhn", "python-stdnum").is_valid(digits)
    )


_CARD = re.compile(  # first digits, and the number of those that follow
    r"4\d{12}(?:\d{3}){0,2}"
    r"|(?:5[1-5]\d{2}|222[1-9]|22[3-9]\d|2[3-6]\d{2}|27[01]\d|2720)\d{12}"
    r"|3[47]\d{13}"
    r"|(?:30[0-5]|3[689]\d)\d{11}(?:\d{2})?"
    r"|(?:6011|64[4-9]\d|65\d{2}|62\d{2}|35(?:2[89]|[3-8]\d))\d{12,15}"
    r"|(?:50|5[6-9]|6(?!011|4[4-9]|5|2)\d)\d{11,17}"
)


def _is_email(text: str) -> bool:
    _, at, domain = re.split(r"(@|%40|&#64;|\\u0040)", text, maxsplit=1)
    last = domain.rpartition(".")[2].lower()
    return at != "@" or last not in _FILE_EXTENSIONS


_FILE_EXTENSIONS = ("png", "jpg", "jpeg", "gif", "svg", "webp", "css", "js", "ts", "py", "json", "html")
"""Last parts of names such as logo@2x.png."""


def _is_address(text: str) -> bool:
    """An address of a machine, other than the usual names of the own one and of all."""
    if "::" not in text and text.count(":") not in (0, 6, 7):
        return False  # a time, mostly
    try:
        return str(ipaddress.ip_address(text)) not in ("127.0.0.1", "0.0.0.0", "::1", "::")
    except ValueError:
        return False


def _is_ssn(text: str) -> bool:
    """A social security number of an area, a group and a serial number that are issued."""
    area, group, serial = text[:3], text[3:].lstrip("-")[:2], text[-4:]
    return not (area in ("000", "666") or area[0] == "9" or group == "00" or serial == "0000")


def _is_nino(text: str) -> bool:
    """A British national insurance number of first letters that are issued."""
    return text[:2] not in ("BG", "GB", "KN", "NK", "NT", "TN", "ZZ")


def _is_phone(regions: tuple[str, ...], text: str) -> bool:
    """Whether a number can be dialed: with + from anywhere, else from one of the regions, grouped as there.

    Args:
        regions: ISO 3166 codes of two letters.
    """
    if _DATE.match(text) or len(_SINGLE_DIGIT.findall(text)) > 2 or text.count("(") > 1:
        return False  # as no number is written
    return any(_is_number(text, region) for region in ((None,) if text.startswith("+") else regions))


def _is_grouped_phone(regions: tuple[str, ...], text: str) -> bool:
    """`_is_phone` for a number that is not written as digits alone."""
    return not text.isdigit() and (text[0] != "(" or ")" in text) and _is_phone(regions, text)


def _is_number(text: str, region: str | None) -> bool:
    phonenumbers = library("phonenumbers", "phonenumbers")
    digits = re.sub(r"\W", "", text)
    if region and digits.isdecimal() and digits.isascii() and not _national(region).fullmatch(digits):
        return False
    try:
        number = phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        return False
    if not phonenumbers.is_valid_number(number):
        return False
    grouped = phonenumbers.Leniency.STRICT_GROUPING
    matches = phonenumbers.PhoneNumberMatcher(text, region, leniency=grouped, max_tries=1)
    return any((match.start, match.end) == (0, len(text)) for match in matches)


@cache
def _national(region: str) -> re.Pattern[str]:
    """Digits that may be a number of a region or of one with its country code: most digits that are no number are
    refused faster than by parsing them."""
    phonenumbers = library("phonenumbers", "phonenumbers")
    own = phonenumbers.PhoneMetadata.metadata_for_region(region)
    regions = phonenumbers.COUNTRY_CODE_TO_REGION_CODE[own.country_code]  # the main one first
    plans = [phonenumbers.PhoneMetadata.metadata_for_region(each) for each in regions]
    if own.national_prefix_transform_rule or plans[0].national_prefix_transform_rule:
        return re.compile(r"\d*")
    prefix = "|".join(plan.national_prefix_for_parsing or "" for plan in (own, plans[0]))
    numbers = "|".join(plan.general_desc.national_number_pattern for plan in plans)
    return re.compile(
        rf"(?:{own.international_prefix})\d*|(?:{own.country_code})?(?:{prefix})?(?:{prefix})?(?:{numbers})"
    )


def check_regions(regions: tuple[str, ...]) -> None:
    """Check the codes of regions.

    Raises:
        UsageError: an unknown one.
    """
    known = library("phonenumbers", "phonenumbers").SUPPORTED_REGIONS
    for region in regions:
        if region not in known:
            raise UsageError(f"regions: unknown region {region!r}: expected codes of two letters such as US, GB or DE")


_HEX = "[0-9a-fA-F]"
_CODED = r"%[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}"
_LOCAL = rf"(?:[\w.+-]|{_CODED}|'(?=\w)){{0,255}}"
_LETTER = rf"(?:[^\W_]|{_CODED})"
_DOMAIN = (
    rf"(?:{_LETTER}(?:(?:[\w-]|{_CODED}){{0,61}}{_LETTER})?\.){{1,8}}(?:xn--[a-zA-Z0-9-]{{2,50}}|[^\W\d_]{{2,24}})"
)
_AT_SIGNS = ("@", "%40", "&#64;", r"\u0040")
_AT = f"(?:{'|'.join(map(re.escape, _AT_SIGNS))})"
_TOKENS = {  # by first character
    "A": r"(?:KI|SI)A[0-9A-Z]{16}|Iza[\w-]{35}",
    "g": r"h[pousr]_[A-Za-z0-9]{36,255}|ithub_pat_[A-Za-z0-9_]{22,255}|lpat-[\w-]{20,64}",
    "x": r"ox[abeoprs]-[A-Za-z0-9-]{10,250}",
    "[psr]": r"k_(?:live|test)_[A-Za-z0-9]{16,250}|k-(?:[a-z]{2,10}-)?[\w-]{20,250}",
    "h": r"f_[A-Za-z0-9]{30,64}",
    "n": r"pm_[A-Za-z0-9]{36}",
    "S": r"G\.[\w-]{22}\.[\w-]{43}",
}

IDENTIFIERS: list[Identifier] = [
    identifier(
        "SECRET", "-",
        r"----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY-----.{1,16000}?-----END (?:[A-Z]+ ){0,3}PRIVATE KEY-----", 16_200,
    ),
    identifier("SECRET", "e", r"yJ[\w-]{8,4000}\.eyJ[\w-]{4,8000}\.[\w-]{8,2000}", 14_100),
    *(identifier("SECRET", first, rest, 300) for first, rest in _TOKENS.items()),
    identifier(
        "SECRET", r"[^\s/:@\"'<>]", r"(?<=://.)[^\s/:@\"'<>]{0,128}:[^\s/:@\"'<>]{1,256}(?=@)", 400,
        contents=("://",),
    ),
    identifier("EMAIL", r"\w", rf"{_LOCAL}{_AT}{_DOMAIN}", 8_192, _is_email, contents=_AT_SIGNS),
    identifier(
        "EMAIL", r"[%\\]", rf"(?:(?<=%)[0-9a-fA-F]{{2}}|(?<=\\)u[0-9a-fA-F]{{4}}){_LOCAL}{_AT}{_DOMAIN}", 8_192,
        _is_email, contents=_AT_SIGNS,
    ),
    identifier(
        "IBAN", "[A-Za-z]", r"[A-Za-z]\d{2}(?:[ \u00a0-]?[A-Za-z0-9]){11,30}", 70, standard_number("iban"),
    ),
    number("CARD", r"(?:[ \u00a0\u202f-]?\d){12,18}", 37, _is_card, first="[2-6]"),
    identifier("IP", r"\d", r"\d{0,2}(?:\.\d{1,3}){3}(?!\.\d)", 15, _is_address),
    identifier(
        "IP", "[0-9a-fA-F:]",
        rf"(?:(?<=:){_HEX}{{0,4}}(?::{_HEX}{{0,4}}){{1,7}}|{_HEX}{{0,3}}(?::{_HEX}{{0,4}}){{2,8}})"
        rf"(?:(?<=:)(?:\d{{1,3}}\.){{3}}\d{{1,3}})?(?<!{_HEX}:)(?<!:::)(?![:.]\w)", 60,
        _is_address,
    ),
    identifier("MAC", _HEX, rf"{_HEX}(?:[:-]{_HEX}{{2}}){{5}}(?![:-]{_HEX})", 17),
    number("SSN", r"\d{2}-\d{2}-\d{4}(?!-\d)", 11, _is_ssn),
    number("SSN", r"\d{8}", 9, _is_ssn, words="ssn|social security(?: number| no)?"),
    identifier("NATIONAL_ID", "[A-CEGHJ-PR-TW-Z]", r"[A-CEGHJ-NPR-TW-Z] ?\d{2} ?\d{2} ?\d{2} ?[A-D]", 13, _is_nino),
    identifier("NATIONAL_ID", "[XYZ]", r"-?\d{7}-?[A-Z]", 11, standard_number("es.nie")),
    number("NATIONAL_ID", r"\d{7}-?[A-Z]", 10, standard_number("es.dni")),
    identifier(
        "NATIONAL_ID", "[A-Z]", r"[A-Z]{5}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z]", 16,
        standard_number("it.codicefiscale"),
    ),
    number(
        "NATIONAL_ID", r" ?\d{2} ?\d{2} ?\d[\dAB] ?\d{3} ?\d{3} ?\d{2}", 22, standard_number("fr.nir"), first="[12]",
    ),
    number("NATIONAL_ID", r"\d{2}\.\d{3}\.\d{3}-\d{2}", 14, standard_number("br.cpf")),
    number("NATIONAL_ID", r"\d{5}[-+]\d{4}|\d{7}-\d{4}", 13, standard_number("se.personnummer")),
    number("NATIONAL_ID", r"\d{5}[-+A]\d{3}[0-9A-FHJ-NPR-Y]", 11, standard_number("fi.hetu")),
    number("NATIONAL_ID", r"\d{3} \d{4} \d{4}(?![ -]?\d)", 14, standard_number("in_.aadhaar")),
    number(
        "NATIONAL_ID", r"\d ?\d{3} ?\d{3} ?\d{3}", 14, standard_number("de.idnr"),
        words="id-?nr|steuer-?id|identifikationsnummer|steuerliche identifikationsnummer|tax id",
    ),
    number("NATIONAL_ID", r"\d{8}", 9, standard_number("nl.bsn"), words="bsn|burgerservicenummer"),
    number("NATIONAL_ID", r"\d{10}", 11, standard_number("pl.pesel"), words="pesel"),
    number(
        "NATIONAL_ID", r"\d{2}[ -]\d{3}[ -]\d{3}", 11, standard_number("ca.sin"),
        words="sin|social insurance(?: number)?",
    ),
    number("NATIONAL_ID", r"\d{2} ?\d{3} ?\d{3}", 11, standard_number("au.tfn"), words="tfn|tax file no"),
    identifier("NATIONAL_ID", "[A-Z]", r"[A-Z]{4}\d{4}[A-Z]", 10, standard_number("in_.pan"), words="pan(?: number)?"),
    identifier("BITCOIN", "[13]", r"[1-9A-HJ-NP-Za-km-z]{25,34}", 35, standard_number("bitcoin")),
    identifier("BITCOIN", "b", r"c1[02-9ac-hj-np-z]{11,71}", 74, standard_number("bitcoin")),
    identifier("PASSPORT", "P", r"[A-Z<][A-Z]{3}[A-Z<]{39}\s{1,2}[A-Z0-9<]{44}", 92),
]  # fmt: skip
"""Identifiers but telephone numbers, whose check depends on regions; where two begin at the same character, the longer
one counts, then the first."""

_PHONE_WORDS = (
    "tel|tel\\.?nr|telephone|phone|phone[ _-]?(?:number|no)|mobile|cell|fax|call(?=[ :])|sms|whatsapp|handy|mobil"
    "|telefon|t\u00e9l|t\u00e9l\u00e9phone|m\u00f3vil|tel\u00e9fono"
)
_DIGITS = r"(?:[ ./()\u00a0\u2009\u202f\u2010\u2011\u2013-]{0,3}\d)"
_EXTENSION = r"(?:(?: ?x|,? ?ext\.? ?)\d{1,6})?"


def phones(regions: tuple[str, ...]) -> list[Identifier]:
    """Telephone numbers that can be dialed from regions: international, with an area code as it is usually written, or
    any digits after a word that names them.

    Args:
        regions: ISO 3166 codes of two letters.

    Raises:
        UsageError: an unknown region.
    """
    check_regions(regions)
    is_phone, is_grouped = (partial(check, regions) for check in (_is_phone, _is_grouped_phone))
    written = [  # first character, the others, and `Identifier.starts`
        (r"\+", rf"\d{_DIGITS}{{6,16}}", None),
        (r"\(", rf"(?:\+|0)?\d{_DIGITS}{{5,15}}", None),
        ("0", rf"\d?[ /-]?\d{_DIGITS}{{5,15}}", _NUMBER),
        ("1", r"([-. ])\d{3}([-. ])\d{3}\2\d{4}", _NUMBER),
        (r"\d", r"\d{2}([-. ])\d{3}\1\d{4}", _NUMBER),
    ]

    return [
        *(
            identifier("PHONE", first, rf"(?<!\w[./-].){rest}{_EXTENSION}(?!-\d)", 96, is_grouped, starts=starts)
            for first, rest, starts in written
        ),
        number("PHONE", rf"{_DIGITS}{{6,15}}{_EXTENSION}", 96, is_phone, words=_PHONE_WORDS),
    ]


_SINGLE_DIGIT = re.compile(r"(?<!\d)\d(?!\d)")
_DATE = re.compile(r"\d{1,2}([-./])\d{1,2}\1\d{2,4}(?!\d)|\d{4}([-./])\d{1,2}\2\d{1,2}(?!\d)")
