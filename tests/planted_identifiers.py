"""Documents with planted identifiers, beside numbers and names that look like them."""

import json
import random
from collections.abc import Callable
from typing import NamedTuple

import phonenumbers
from stdnum import iban, luhn

_WORDS = {
    "en": "the report was sent to our office after lunch and nobody read it until the next morning".split(),
    "de": "der Bericht wurde nach dem Mittagessen an unser Büro geschickt und niemand hat ihn gelesen".split(),
    "fr": "le rapport a été envoyé à notre bureau après le déjeuner et personne ne l'a lu avant demain".split(),
    "es": "el informe se envió a nuestra oficina después de comer y nadie lo leyó hasta la mañana".split(),
    "ru": "отчёт был отправлен в наш офис после обеда и никто не прочитал его до утра".split(),
    "zh": ["报告", "在", "午饭", "后", "送到", "办公室", "没有人", "读"],
}
_NAMES = ["ada", "lovelace", "o'brien", "émile", "jose.garcia", "li_wei", "anna-maria", "x", "bob+news", "info"]
_HOSTS = ["example.org", "mail.example.co.uk", "firma.de", "société.fr", "a.io", "sub.domain.museum"]


class Planted(NamedTuple):
    """A document and what must not be left of it."""

    text: str
    values: list[str]
    format: str
    kinds: list[str]  # of the values


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choices("0123456789", k=count))


def _email(rng: random.Random) -> str:
    return f"{rng.choice(_NAMES)}{rng.choice(['', _digits(rng, 2)])}@{rng.choice(_HOSTS)}"


def _card(rng: random.Random) -> str:
    first, length = rng.choice([("4", 16), ("51", 16), ("34", 15), ("6011", 16), ("36", 14)])
    number = first + _digits(rng, length - len(first) - 1)
    number += luhn.calc_check_digit(number)
    if length != 16 or rng.random() < 0.4:
        return number
    separator = rng.choice(" -")
    return separator.join(number[index : index + 4] for index in range(0, 16, 4))


def _iban(rng: random.Random) -> str:
    country, length = rng.choice([("DE", 18), ("GB", 0), ("NL", 0)])
    number = (
        _digits(rng, length) if length else {"GB": "NWBK" + _digits(rng, 14), "NL": "ABNA" + _digits(rng, 10)}[country]
    )
    number = country + iban.calc_check_digits(f"{country}00{number}") + number
    return iban.format(number) if rng.random() < 0.5 else number


def _phone(rng: random.Random) -> str:
    region, pattern = rng.choice(
        [("US", "212"), ("US", "415"), ("GB", "20"), ("DE", "30"), ("FR", "1"), ("ES", "91"), ("IN", "98")]
    )
    while True:
        number = phonenumbers.parse(f"{pattern}{_digits(rng, 8 if region in 'GBDEFR' else 7)}", region)
        if region == "IN":
            number = phonenumbers.parse(f"{pattern}{_digits(rng, 8)}", region)
        if phonenumbers.is_valid_number(number):
            break
    forms = [phonenumbers.PhoneNumberFormat.INTERNATIONAL, phonenumbers.PhoneNumberFormat.E164]
    if region in ("US", "GB", "DE", "FR"):
        forms.append(phonenumbers.PhoneNumberFormat.NATIONAL)
    return phonenumbers.format_number(number, rng.choice(forms))


def _ssn(rng: random.Random) -> str:
    return f"{rng.randint(1, 665):03}-{rng.randint(1, 99):02}-{rng.randint(1, 9999):04}"


def _address(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return "2001:db8:" + ":".join(f"{rng.randrange(1, 65536):x}" for _ in range(6))
    return ".".join(str(rng.randint(1, 254)) for _ in range(4))


def _mac(rng: random.Random) -> str:
    return rng.choice(":-").join(f"{rng.randrange(256):02x}" for _ in range(6))


def _token(rng: random.Random) -> str:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return rng.choice(
        ["AKIA" + "".join(rng.choices(letters[26:], k=16)).upper(), "ghp_" + "".join(rng.choices(letters, k=36))]
    )


IDENTIFIERS: list[tuple[str, Callable[[random.Random], str]]] = [
    ("EMAIL", _email), ("EMAIL", _email), ("CARD", _card), ("IBAN", _iban), ("PHONE", _phone), ("PHONE", _phone),
    ("SSN", _ssn), ("IP", _address), ("MAC", _mac), ("SECRET", _token),
]  # fmt: skip


def _other(rng: random.Random) -> str:
    """What is no identifier."""
    year, month, day = rng.randint(1990, 2026), rng.randint(1, 12), rng.randint(1, 28)
    return rng.choice(
        [
            f"{year}-{month:02}-{day:02}",
            f"{day:02}.{month:02}.{year}",
            f"{month}/{day}/{year}",
            f"{year}-{month:02}-{day:02}T{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}Z",
            f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}",
            f"{rng.randrange(10**6):,}.{rng.randrange(100):02}",
            f"{rng.randint(1, 20)}.{rng.randrange(40)}.{rng.randrange(40)}",
            f"ISBN 978-{rng.randrange(10)}-{_digits(rng, 2)}-{_digits(rng, 6)}-{rng.randrange(10)}",
            f"{rng.getrandbits(48):012x}"[:8]
            + f"-{rng.getrandbits(16):04x}-4{_digits(rng, 3)}-a0{_digits(rng, 2)}-{_digits(rng, 9)}abc",
            f"{rng.getrandbits(160):040x}",
            f"#{rng.randrange(10**6)}",
            f"order {_digits(rng, rng.randint(4, 9))}",
            f"{rng.uniform(-90, 90):.6f}, {rng.uniform(-180, 180):.6f}",
            "logo@2x.png",
            "@decorator",
            f"page {rng.randrange(400)} of 400",
            f"{rng.randrange(100)} %",
            f"A{rng.randrange(100)}-{rng.randrange(1000)}",
        ]
    )


def document(seed: int) -> Planted:
    """A document of a format and a language, of a seed."""
    rng = random.Random(seed)
    words = _WORDS[rng.choice(list(_WORDS))]
    planted = [(kind, make(rng)) for kind, make in (rng.choice(IDENTIFIERS) for _ in range(rng.randint(1, 4)))]
    kinds, values = [kind for kind, _ in planted], [value for _, value in planted]
    items = [*values, *(_other(rng) for _ in range(rng.randint(1, 5)))]
    rng.shuffle(items)

    def some() -> str:
        return " ".join(rng.choices(words, k=rng.randint(2, 7)))

    kind = rng.choice(["prose", "json", "escaped", "csv", "log", "mail", "code"])
    if kind == "prose":
        text = " ".join(f"{some()} {item}{rng.choice(['', ',', '.', ';', '?'])}" for item in items) + "\n"
    elif kind in ("json", "escaped"):
        rows = {
            f"{rng.choice(words)}{number}": rng.choice([item, f"{some()} {item}", f"{some()}:\n{item}\t{some()}"])
            for number, item in enumerate(items)
        }
        text = json.dumps(rows, ensure_ascii=kind == "escaped", indent=rng.choice([None, 2])) + "\n"
    elif kind == "csv":
        text = "name,value,note\r\n" + "".join(
            f'{rng.choice(words)},"{item}",{some()}\r\n' if "," in item else f"{rng.choice(words)},{item},{some()}\r\n"
            for item in items
        )
    elif kind == "log":
        text = "".join(
            f"2026-11-28T10:{i:02}:07Z INFO [worker-{i}] user={item} took={rng.randrange(999)}ms\n"
            for i, item in enumerate(items)
        )
    elif kind == "mail":
        text = f"From: <{_email(rng)}>\r\nDate: Sat, 28 Nov 2026 10:15:00 +0100\r\nSubject: {some()}\r\n\r\n"
        values.append(text[text.index("<") + 1 : text.index(">")])
        kinds.append("EMAIL")
        text += "".join(f"> {some()} ({item})\r\n" for item in items)
    else:
        text = "".join(
            rng.choice([f'value_{i} = "{item}"\n', f"# {item}\n", f"call('{item}', {i})\n"])
            for i, item in enumerate(items)
        )
    return Planted(text, values, kind, kinds)
