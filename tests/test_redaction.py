"""Redaction: nothing that was planted is left, nothing else is taken, in pieces of any size."""

import json
import random
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import phonenumbers
import pytest
from planted_identifiers import document

from bertkit.cli import run
from bertkit.errors import DataError, UsageError
from bertkit.redaction import Key, RedactionSteps, Redactor
from bertkit.redaction.identifiers import IDENTIFIERS, _national, phones
from bertkit.redaction.redactor import _Stream, kind_of
from bertkit.redaction.spans import BLOCK, IdentifierFinder, Span, TaggedFinder, Union, Window

TEXT = "Ada (ada@example.org, +44 20 7946 0958) paid with 4111 1111 1111 1111.\r\n"


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


def pieces(text: str, rng: random.Random, sizes: Sequence[int] = (1, 2, 7, 50, 1_000)) -> Iterator[str]:
    start = 0
    while start < len(text):
        size = rng.choice(sizes)
        yield text[start : start + size]
        start += size


def forms(values: list[str]) -> list[str]:
    """Values as they are, and as in JSON."""
    return [form for value in values for form in (value, json.dumps(value)[1:-1])]


def check_documents(redactor: Redactor, seeds: range) -> None:
    leaks, others, num_right = [], [], 0
    for seed in seeds:
        planted = document(seed)
        redaction = redactor.redact(planted.text)
        hidden = forms(planted.values)
        leaks += [(seed, value) for value in hidden if value in redaction.text]
        for each in redaction.replacements:
            value = planted.text[each.start : each.end]
            num_right += value in hidden
            others += [] if value in hidden else [(seed, value)]
        shown = re.sub(r"\[[A-Z_]+\]", "", redaction.text)
        assert len(planted.text) == len(shown) + sum(each.end - each.start for each in redaction.replacements), seed
    assert leaks == []
    assert num_right > 2 * len(seeds) and len(others) <= 0.01 * num_right, others[:20]


def test_planted_identifiers_are_replaced_and_nothing_else(redactor: Redactor) -> None:
    check_documents(redactor, range(1_500))


@pytest.mark.slow
def test_many_planted_identifiers(redactor: Redactor) -> None:
    check_documents(redactor, range(1_500, 100_000))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail ada@example.org.", "mail [EMAIL]."),
        ('{"a": "x\\nada@example.org"}', '{"a": "x\\n[EMAIL]"}'),
        ("andr\\u00e9@exa.org", "[EMAIL]"),
        ("DOMAIN\\ada@example.org", "DOMAIN\\[EMAIL]"),
        ("?email=ada%2Bx%40b.com&x=1", "?email=[EMAIL]&x=1"),
        ("logo@2x.png @decorator user@localhost", "logo@2x.png @decorator user@localhost"),
        ("12 4111-1111-1111-1111 12", "12 [CARD] 12"),
        ("4111111111111112 0000000000000000", "4111111111111112 0000000000000000"),
        ("IBAN de89 3704 0044 0532 0130 00.", "IBAN [IBAN]."),
        ("on 01-02-2024 10:15, 2024-11-28, 1.234.567,89", "on 01-02-2024 10:15, 2024-11-28, 1.234.567,89"),
        ("phone: 2125550142; order 2125550142", "phone: [PHONE]; order 2125550142"),
        ("(030) 901820 und (siehe 030)", "[PHONE] und (siehe 030)"),
        ("ssn 219099999, 219-09-9999, 000-12-3456", "ssn [SSN], [SSN], 000-12-3456"),
        ("fe80::1 and 10:15:30 and std::vector", "[IP] and 10:15:30 and std::vector"),
        ("fe80::1: no route to 2001:db8::/32", "[IP]: no route to [IP]/32"),
        ("scan_4111111111111111_2.png of _ada@example.org_", "scan_[CARD]_2.png of [EMAIL]_"),
        ("BG 12 34 56 C, AB 12 34 56 C", "BG 12 34 56 C, [NATIONAL_ID]"),
        ("localhost 127.0.0.1, version 1.2.3", "localhost 127.0.0.1, version 1.2.3"),
        ("https://user:hunter2@host.org/x", "https://[SECRET]/x"),
        ("CPF 529.982.247-25, NIE X1234567L", "CPF [NATIONAL_ID], NIE [NATIONAL_ID]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\n", "[SECRET]\n"),
        ("", ""),
    ],
)
def test_examples(redactor: Redactor, text: str, expected: str) -> None:
    redacted = redactor.redact(text).text
    assert re.sub(r"https://\[SECRET\].*", "https://[SECRET]/x", redacted) == expected


VALUES = [  # of every pattern
    "ada@example.org", "%C3%A9mile@example.org", "4111 1111 1111 1111", "4111111111111111",
    "DE89 3704 0044 0532 0130 00",
    "gb82WEST12345698765432", "192.168.10.7", "fe80::1", "2001:db8::", "2001:db8:85a3:8d3:1319:8a2e:370:7348",
    "::ffff:10.1.2.3", "00:1b:44:11:3a:b7", "219-09-9999", "+44 20 7946 0958", "(212) 555-0142", "212-555-0142",
    "1-212-555-0142", "030 901820", "AB 12 34 56 C", "X1234567L", "12345678Z", "RSSMRA85T10A562S",
    "1 85 07 75 116 001 91",
    "285072A11600101", "529.982.247-25", "880320-0016", "131052-308T", "2341 2341 2346",
    "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4", "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a1B2" * 9, "xoxb-" + "a1b2" * 5, "sk_live_" + "a1b2" * 6, "hf_" + "a1B2" * 8, "npm_" + "a1B2" * 9,
    "SG." + "a1B2" * 5 + "ab." + "a1B2" * 10 + "abc", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.c2lnbmF0dXJl",
    "-----BEGIN PRIVATE KEY-----abc-----END PRIVATE KEY-----",
    "P<UTOERIKSSON<<ANNA<MARIA<<<<<<<<<<<<<<<<<<<\nL898902C36UTO7408122F1204159ZE184226B<<<<<10",
]  # fmt: skip
NAMED_VALUES = {  # with the word that names them
    "ssn": "219099999", "Steuer-ID": "36 574 261 809", "BSN": "111222333", "PESEL": "44051401359", "SIN": "130 692 544",
    "TFN": "123 456 782", "PAN": "ACUPA7085R", "tel.": "2125550142",
}  # fmt: skip


def test_every_pattern_finds_a_value() -> None:
    texts = [*VALUES, *(f"{word}: {value}" for word, value in NAMED_VALUES.items()), "https://ada:pass@host"]
    for each in [*IDENTIFIERS, *phones(("US", "GB", "DE", "FR"))]:
        window = [Window(text, 0, True) for text in texts]
        assert any(list(IdentifierFinder(each).find(text)) for text in window), each


def test_values_are_replaced_beside_any_sign(redactor: Redactor) -> None:
    before = ["", *"([{\"'<>/|=:«“-–*_#@~&。", ". ", "=> ", "\\n", "\\t", "文："]
    after = ["", *",;!?)]}>\"'/|…»”’-–—=&#%*_~@。、\t", ". ", ": ", "\\n", "、文"]
    leaks = []
    for value in VALUES:
        text = "".join(f"x {first}{value}{last}\u2003y\r" for first in before for last in after)
        leaks += [line for line in redactor.redact(text).text.split("\r") if value in line]
    assert leaks == []


@pytest.mark.parametrize("region", ["US", "GB", "DE", "FR", "IT", "JE", "CA", "BR", "AR", "CN", "KZ", "SM", "AU"])
def test_no_number_is_refused_by_its_digits(region: str) -> None:
    rng = random.Random(region)
    prefixes = ["", "0", "1", "00", "011", phonenumbers.country_code_for_region(region)]
    valid = 0
    for kind in range(5):
        example = phonenumbers.example_number_for_type(region, kind)
        for _ in range(200 if example else 0):
            digits = list(f"{rng.choice(prefixes)}{phonenumbers.national_significant_number(example)}")
            digits[rng.randrange(len(digits))] = rng.choice("0123456789")
            text = "".join(digits)
            with suppress(phonenumbers.NumberParseException):
                if phonenumbers.is_valid_number(phonenumbers.parse(text, region)):
                    valid += 1
                    assert _national(region).fullmatch(text), text
    assert valid > 50


@pytest.mark.full(sample=6)
@pytest.mark.parametrize("seed", range(40))
def test_pieces_of_any_size_give_the_same_text(monkeypatch, seed: int) -> None:
    monkeypatch.setattr("bertkit.redaction.redactor._AT_ONCE", 1)  # search after every piece
    rng = random.Random(seed)
    text = "".join(document(rng.randrange(10**6)).text for _ in range(12))
    noise = "".join(rng.choices(' \n-.()+0123456789@:aA[]\\"', k=2_000))
    text += noise
    whole = list(Redactor().redact_stream([text]))
    assert "".join(Redactor().redact_stream(pieces(text, rng))) == "".join(whole)


@pytest.mark.parametrize("unit", [TEXT, "a" * 99, "1 ", "a@b.c", "-----BEGIN PRIVATE KEY-----", "0 0 (0", "[EMAIL_1_"])
def test_memory_does_not_grow_with_the_stream(redactor: Redactor, unit: str) -> None:
    stream = _Stream(redactor, None, redactor.names_in)
    for _ in range(20):
        stream.feed((unit * 4_000)[:4_000])
        assert len(stream.text) < 100_000


def test_overlapping_spans_are_one() -> None:
    class Given:
        def __init__(self, spans: list[Span]) -> None:
            self.spans, self.position = spans, 0

        def find(self, window: Window) -> Iterator[Span]:
            yield from self.spans
            self.spans, self.position = [], window.end

    spans = [
        Given([Span(0, 4, "A"), Span(9, 12, "A")]),
        Given([Span(2, 6, "B"), Span(9, 14, "B")]),
        Given([Span(6, 8, "C")]),
    ]
    union = Union(spans)
    assert list(union.find(Window("x" * 20, 0, True))) == [Span(0, 6, "A"), Span(6, 8, "C"), Span(9, 14, "B")]
    long = Union([Given([Span(0, 7, "A")]), Given([Span(3, 15, "B")])], longest=10)
    assert list(long.find(Window("x" * 20, 0, True))) == [Span(0, 10, "A"), Span(10, 15, "B")]


def test_a_tagger_reads_the_same_blocks_of_any_pieces() -> None:
    seen = list[str]()

    def tag(texts: Sequence[str]) -> list[list[Span]]:
        seen.extend(texts)
        return [[Span(match.start(), match.end(), "NAME") for match in re.finditer("Ada", text)] for text in texts]

    text = "Ada went home. " * 3_000 + "\n" + "no end" * 3_000
    whole = list(TaggedFinder(tag).find(Window(text, 0, True)))
    blocks, seen[:] = list(seen), []
    finder, spans = TaggedFinder(tag), list[Span]()
    for end in [*range(1, len(text), 777), len(text)]:
        spans += finder.find(Window(text[:end], 0, end == len(text)))
    assert spans == whole and len(whole) == 3_000
    assert seen == blocks and "".join(blocks) == text and max(map(len, blocks)) <= BLOCK


def test_names_of_a_tagger_are_replaced(tagger: SimpleNamespace) -> None:
    redaction = Redactor(["EMAIL", "PER"], tagger=tagger).redact(TEXT)
    assert redaction.text.startswith("[PER] ([EMAIL], +44")
    assert [each.kind for each in redaction.replacements] == ["PER", "EMAIL"]
    assert Redactor(["EMAIL"], tagger=tagger).redact("Ada").text == "Ada"
    assert kind_of("person name") == "PERSON_NAME" and kind_of("1st") == "LABEL_1ST"


@pytest.fixture
def tagger() -> SimpleNamespace:
    def extract(texts: Sequence[str], labels: Sequence[str], *, threshold: float | None) -> list[list[SimpleNamespace]]:
        assert (labels, threshold) == (["PER"], None)
        return [
            [SimpleNamespace(start=one.start(), end=one.end(), label="PER") for one in re.finditer("Ada", text)]
            for text in texts
        ]

    return SimpleNamespace(entity_labels=lambda labels: labels or ("PER",), extract=extract)


def test_a_key_restores_the_text() -> None:
    key, rng = Key(), random.Random(3)
    redactor = Redactor(key=key)
    text = "".join(document(seed).text for seed in range(60)) + TEXT + TEXT
    redacted = "".join(redactor.redact_stream([text]))
    assert redacted.count(key.placeholder("EMAIL", "ada@example.org")) == 2, "equal values, equal placeholders"
    assert "".join(key.restore(pieces(redacted, rng))) == text
    assert "".join(Redactor(key=key).redact_stream([redacted])) == redacted
    with pytest.raises(UsageError, match=f"of key {key.id}, and this is key"):
        list(Key().restore([redacted]))
    with pytest.raises(UsageError, match="not in this key"):
        list(key.restore([f"[EMAIL_999_{key.id}]"]))


def test_json_stays_json() -> None:
    rows = [{"card": 4111111111111111, "text": 'a "quoted" 4111111111111111, \\', "n": [4111111111111111, 1]}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    redacted = Redactor(is_json=True).redact(text).text
    assert json.loads(redacted) == {"card": "[CARD]", "text": 'a "quoted" [CARD], \\', "n": ["[CARD]", 1]}
    text = text.replace("quoted", "quoted" + "\\\\" * 9) * 3
    whole = Redactor(is_json=True).redact(text).text
    assert [json.loads(line)["card"] for line in whole.splitlines()] == ["[CARD]"] * 3
    assert "".join(Redactor(is_json=True).redact_stream(pieces(text, random.Random(0), (1, 3)))) == whole


def test_rejects_unknown_kinds_regions_and_models() -> None:
    with pytest.raises(UsageError, match="unknown kind 'NAME': expected some of SECRET, EMAIL"):
        Redactor(["NAME"])
    with pytest.raises(UsageError, match="unknown region 'XX'"):
        Redactor(regions=["XX"])
    with pytest.raises(UsageError, match="kinds is empty"):
        Redactor([])
    with pytest.raises(UsageError, match="labels without a model"):
        Redactor(labels=["person"])
    with pytest.raises(UsageError, match="expected a str"):
        Redactor().redact(b"x")  # pyrefly: ignore


def test_command(tmp_path: Path, capsysbinary) -> None:
    source, out, key, report = (tmp_path / name for name in ("in.txt", "out.txt", "key.json", "report.json"))
    source.write_bytes(b"\xef\xbb\xbf" + TEXT.encode() * 3)
    code = run(["redact", str(source), "--out", str(out), "--key", str(key), "--report", str(report)])
    error = capsysbinary.readouterr().err.decode()
    assert code == 0 and "replaced 3 CARD, 3 EMAIL, 3 PHONE; telephone numbers without + are those of US, GB" in error
    assert b"4111" not in out.read_bytes() and out.read_bytes().endswith(b"\r\n")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    shown = report.read_text() + error
    assert "4111" not in shown and "ada@" not in shown
    assert json.loads(report.read_text())["replacements"] == {"CARD": 3, "EMAIL": 3, "PHONE": 3}
    assert run(["redact", str(out), "--key", str(key), "--restore"]) == 0
    assert capsysbinary.readouterr().out == source.read_bytes()


def test_command_rejects_bad_input(tmp_path: Path, capsys, monkeypatch) -> None:
    def error(*arguments: object) -> str:
        assert run(["redact", *map(str, arguments)]) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        return line

    text, binary, latin, key, no_key = (tmp_path / name for name in ("a.txt", "b.txt", "c.txt", "k.json", "n.json"))
    text.write_text(TEXT)
    binary.write_bytes(b"text\0more")
    latin.write_bytes("naïve".encode("latin-1"))
    no_key.write_text('{"a": 1}')
    assert "no such file" in error(tmp_path / "none.txt")
    assert "is a folder: expected a file" in error(tmp_path)
    assert "zero bytes" in error(binary)
    assert "byte 2 is not UTF-8" in error(latin)
    assert "is not a key file" in error(text, "--key", no_key)
    assert "no such key file" in error(text, "--key", key, "--restore")
    assert "--restore needs --key" in error(text, "--restore")
    assert "--restore takes --key and --out only" in error(text, "--restore", "--key", key, "--kinds", "EMAIL")
    assert "the same file" in error(text, "--out", tmp_path / "x", "--key", tmp_path / "x")
    assert "unknown kind 'NAME'" in error(text, "--kinds", "NAME")
    assert not key.exists() and not (tmp_path / "x").exists()
    Key().write(key)
    text.write_text("[EMAIL_1_00000000]")
    assert "of key 00000000, and this is key" in error(text, "--restore", "--key", key)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"")))
    assert run(["redact", "-"]) == 0 and "replaced nothing" in capsys.readouterr().err


def test_a_broken_key_file_is_refused(tmp_path: Path) -> None:
    path, key = tmp_path / "key.json", Key()
    key.placeholder("EMAIL", "ada@example.org")
    key.write(path)
    assert Key.read(path).placeholder("EMAIL", "ada@example.org") == key.placeholder("EMAIL", "ada@example.org")
    content = json.loads(path.read_text())
    for broken, message in [
        (content | {"id": "11111111"}, "is no placeholder of this key"),
        (content | {"bertkit_redaction_key": 2}, "has format 2"),
        (content | {"placeholders": []}, "lacks the id or the placeholders"),
    ]:
        path.write_text(json.dumps(broken))
        with pytest.raises(DataError, match=message):
            Key.read(path)


class Names:
    """Finds a name; with ``interrupted`` only when it is asked again, as if rows of an encoder were not there yet."""

    def __init__(self, *, interrupted: bool) -> None:
        self.interrupted, self.asked = interrupted, set[tuple[str, ...]]()

    def entity_labels(self, labels: Any) -> tuple[str, ...]:
        return ("name",)

    def extract(self, texts: Sequence[str], labels: Any, *, threshold: float | None) -> list[list[Any]]:
        if self.interrupted and tuple(texts) not in self.asked:
            self.asked.add(tuple(texts))
            raise InterruptedError
        spans = [[match.span() for match in re.finditer("Ada", text)] for text in texts]
        return [[SimpleNamespace(start=start, end=end, label="name") for start, end in each] for each in spans]


def test_steps_that_are_made_again_have_the_result_of_a_stream():
    texts = [*(f"Ada wrote to ada{number}@example.org, line {number}\n" * 1_500 for number in range(3)), ""]
    steps = RedactionSteps(Redactor(tagger=Names(interrupted=True)), texts)
    num_interrupted, num_steps, results = 0, 0, None
    while results is None:
        left = steps.num_left
        try:
            results = steps.next()
        except InterruptedError:
            num_interrupted += 1
            assert steps.num_left == left
        else:
            num_steps += 1
            assert left - steps.num_left < 80_000
    assert (num_interrupted, num_steps, steps.num_left) == (3, 3, 0)
    for text, result in zip(texts, results, strict=True):
        assert result.text == "".join(Redactor(tagger=Names(interrupted=False)).redact_stream([text]))
        assert result.text.count("[NAME]") == text.count("Ada") == result.text.count("[EMAIL]")
