"""Exact things in search: codes, phrases, exclusions, file names, languages, and words that no passage has."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bertkit import Document
from bertkit.cli import run
from bertkit.errors import UsageError
from bertkit.search import Equal
from bertkit.search.encoder import Encoder
from bertkit.search.fusion import with_exact
from bertkit.search.index import Index
from bertkit.search.query import Condition, Query
from bertkit.search.words import split, words


@pytest.fixture
def index(tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.chdir(tmp_path)
    with Index.open("store", encoder) as opened:
        yield opened


def ids(index: Index, query: str, mode: str = "lexical", k: int = 99, **options) -> list[str]:
    return [one.document_id for one in index.search(query, k, mode=mode, **options)]  # pyrefly: ignore


def add(index: Index, *texts: str) -> None:
    index.add([Document(text, text) for text in texts])


@pytest.mark.parametrize(
    "text, codes",
    [
        ("Release 2.11.3, v1.8.5.2.", ["2.11.3", "1.8.5.2"]),
        ("AX-410-B", ["ax-410-b"]),
        ("10.0.1.2:8080", ["10.0.1.2:8080", "10.0.1.2"]),
        ("getUserName() HTTPServer", ["getusername", "get", "user", "name", "http", "server"]),
        ("ERR_CONNECTION_REFUSED", ["err_connection_refused", "err", "connect", "refus"]),
        ("`--keep-index`, -p and (-f), -name", ["--keep-index", "-p", "-f"]),
        ("pack.threads, os.path.join()", ["pack.threads", "os.path.join"]),
        ("C++, C# and C", ["c++", "c#"]),
        ("(#123) $HOME .gitignore @user", ["#123", "$home", ".gitignore", "@user"]),
        ("guides/search.md in /etc/passwd", ["guides/search.md", "search.md", "/etc/passwd"]),
        ("refs/heads/main", ["refs/heads/main"]),
        ("release-2.5.0 v2.5.0-rc1", ["release-2.5.0", "2.5.0", "2.5.0-rc1", "2.5.0"]),
        ("版本2.11.3发布", ["2.11.3"]),
        ("NAÏVE_Éclair", ["naiv", "eclair"]),
        ("and/or well-known e.g. U.S. 20th 1990s 42 $5 -- ...so end.", []),
        ("x" * 50 + "_" + "x" * 50, []),  # of more than 100 characters
    ],
)  # fmt: skip
def test_codes_are_words_beside_their_parts(text: str, codes: list[str]) -> None:
    assert split(text).codes == codes
    assert split(text).words == words(text)


def test_exact_is_the_whole_form_of_each_code() -> None:
    assert split("fix 10.0.1.2:8080 in E1045 of v2.5.0-rc1, HTTPServer, well-known 20th").exact == [
        "10.0.1.2:8080", "e1045", "2.5.0-rc1", "httpserver",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "one, other",
    [
        ("café résumé", "cafe resume"),
        ("Straße", "strasse"),
        ("Łódź smørrebrød æon", "lodz smorrebrod aeon"),
        ("Ελλάδα", "ελλαδα"),
        ("Việt Nam", "viet nam"),
        ("e\u0301cole", "ecole"),
    ],
)
def test_accents_are_folded(one: str, other: str) -> None:
    assert words(one) == words(other) != []
    assert words("йод") != words("иод")  # marks of other scripts make other letters


def test_the_same_parts_in_another_order_rank_after_the_code(index: Index) -> None:
    for right, wrong in [
        ("Release 2.11.3", "Release 3.11.2"), ("part AB-34-12", "part AB-12-34"), ("at 10.0.1.2", "at 10.0.2.1"),
        ("option --keep-index", "option index-keep"), ("in C++", "in C"), ("in C#", "in C"), ("see #123", "see 123"),
    ]:  # fmt: skip
        add(index, wrong, right)
        assert ids(index, right.split()[-1])[0] == right
    assert ids(index, "v2.11.3")[0] == "Release 2.11.3"
    add(index, "since v1.8.5.2", "getUserName fails", "ERR_CONNECTION_REFUSED again")
    assert ids(index, "1.8.5.2")[0] == "since v1.8.5.2"
    assert ids(index, "user name") == ids(index, "getusername") == ["getUserName fails"]
    assert ids(index, "connection refused") == ["ERR_CONNECTION_REFUSED again"]


def test_hybrid_puts_the_only_passages_with_a_code_first(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the query is every word of other passages, and their vectors are equal to that of the query."""
    versions = [f"Release 3.{minor}.{patch} fixes a crash in the parser." for minor in range(8) for patch in range(6)]
    add(index, *versions)
    vector = index.store.get([next(index.store.records()).id])[0].vector
    monkeypatch.setattr(Encoder, "embed_query", lambda self, queries, report=None: vector[None])
    for version in versions[::5]:
        code = version.split()[1]
        for query in (code, f"v{code}", f"does {code} fix the crash in the parser of release 3.0.0-rc1"):
            assert ids(index, query, "hybrid", 1) == [version]
    both = index.search("3.1.1 3.1.2", 3)
    assert {one.document_id for one in both[:2]} == {versions[7], versions[8]} and both[2].score < 2 < both[1].score
    assert ids(index, "3.1.1", "hybrid", 1, where=Equal("x", 1)) == []


def test_codes_that_many_passages_have_are_usual_words(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.search.lexical.RARE", 2)
    add(index, *(f"{name} since 3.11" for name in ("one", "two", "three")), "cat 3.12", "dog 3.12")
    assert max(one.score for one in index.search("3.11")) < 2
    assert [one.score > 2 for one in index.search("3.12")] == [True, True, False, False, False]


def test_exact_matches_lead_rankings_by_rank() -> None:
    ranking = np.array([5, 9, 7]), np.array([0.3, 0.2, 0.1])
    rows, scores = with_exact(ranking, (np.array([2, 7]), np.array([1, 2])))
    assert rows.tolist() == [7, 2, 5, 9] and scores == pytest.approx([6.1, 3, 0.3, 0.2])


def test_phrases_are_exact(index: Index) -> None:
    add(
        index,
        "The cat chased the dog.",
        "Now the dog\n  chased THE cat!",
        "a dog chased a cat",
        "the dogs chased the cat",
        "to be or not to be",
        "Voilà l'École normale",
        "東京都は大きい",
        "see branch.<name>.rebase",
        "we don\u2019t send e\u2011mail",
    )
    for mode in ("lexical", "hybrid"):
        assert ids(index, '"the dog chased the cat"', mode) == ["Now the dog\n  chased THE cat!"]
        assert set(ids(index, "“dog chased” cat", mode)) == {"a dog chased a cat", "Now the dog\n  chased THE cat!"}
        assert ids(index, 'cat "chased the" "the cat"', mode, where=Equal("x", 1)) == []
        assert ids(index, '"l\'ecole NORMALE"', mode) == ["Voilà l'École normale"]
        for apostrophe, hyphen in (("'", "-"), ("\u2019", "\u2010")):
            phrase = f'"don{apostrophe}t send e{hyphen}mail"'
            assert ids(index, phrase, mode) == ["we don\u2019t send e\u2011mail"]
        assert ids(index, '"京都"', mode) == ["東京都は大きい"]
        assert ids(index, 'branch "branch.<name>.rebase"', mode) == ["see branch.<name>.rebase"]
        assert ids(index, 'dog -"chased the" -dogs', mode)[0] == "a dog chased a cat"
        assert index.search('dog "cat chased dog"', mode=mode).missing == ('"cat chased dog"',)
    assert ids(index, '"to be or not to be"', "hybrid") == ["to be or not to be"]
    assert ids(index, "cat -chased") == [] and set(ids(index, "cat -dog")) == {"the dogs chased the cat"}
    assert len(ids(index, '"the dog" -cat', "dense")) == 9  # meaning alone takes the query as it is


def test_phrases_are_found_in_many_texts_and_after_changes(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.search.lexical._TEXTS_AT_ONCE", 3)
    add(index, *(f"cat {'sat on' if number % 3 else 'on sat'} {number}" for number in range(20)))
    assert set(ids(index, '"sat on"')) == {f"cat sat on {number}" for number in range(20) if number % 3}
    index.store.delete([one.id for one in index.search("cat 4", 1)])
    assert "cat sat on 4" not in ids(index, '"sat on"', "hybrid") and len(ids(index, '"sat on"')) == 12


def test_queries_are_split() -> None:
    usual = 'how do I add -p? --keep-index a-b - -5 24" well'
    assert Query.of(usual) == Query(usual)
    text, conditions = Query.of('cat ("a b") -"c d" -dogs, file:x.md -file:"y z" file:"q"')
    assert text == 'cat ("a b") ,'
    assert conditions == (
        Condition('"a b"', "a b", is_file=False, is_without=False),
        Condition('-"c d"', "c d", is_file=False, is_without=True),
        Condition("-dogs", "dogs", is_file=False, is_without=True),
        Condition("file:x.md", "x.md", is_file=True, is_without=False),
        Condition('-file:"y z"', "y z", is_file=True, is_without=True),
        Condition('file:"q"', "q", is_file=True, is_without=False),
    )


@pytest.mark.parametrize(
    "query, error",
    [
        ('a "b c', "has a quotation mark without a second one: add it"),
        ('a "b" "c', "without a second one"),
        ('a ""', '"" in the query is empty: write a phrase or a file name'),
        ('a -" "', "is empty"),
        ("a file:", "file: in the query is empty"),
        ("-dogs file:x", "has no words: expected some besides -without and file:name"),
    ],
)
def test_wrong_queries_are_refused(index: Index, query: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    for mode in ("hybrid", "lexical"):
        with pytest.raises(UsageError, match=error):
            index.search(query, mode=mode)
        assert index.search(query, mode=mode, plain=True) == []
    assert index.search(query, mode="dense") == []
    assert run(["search", "--store", "store", "--", query]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_names_of_files_are_words_of_their_passages(index: Index, tmp_path: Path) -> None:
    folder = tmp_path / "Équipe"
    folder.mkdir()
    (folder / "onboarding-checklist.txt").write_text("Ask for a key.")
    (folder / "release-2.5.0.txt").write_text("Faster start.")
    (folder / "1.8.2.txt").write_text("Faster stop.")
    (folder / "rows.jsonl").write_text('{"text": "Rain."}\n')
    index.add("Équipe")
    before = {record.text for record in index.store.records()}
    assert before == {"Ask for a key.", "Faster start.", "Faster stop.", "Rain."}
    for mode in ("lexical", "hybrid"):
        assert ids(index, "onboarding checklist", mode, 1) == ["Équipe/onboarding-checklist.txt"]
        assert ids(index, "2.5.0", mode, 1) == ["Équipe/release-2.5.0.txt"]
        assert ids(index, "What is new in 1.8.2?", mode, 1) == ["Équipe/1.8.2.txt"]
        assert ids(index, "faster file:release", mode) == ids(index, "faster -file:1.8.2.TXT", mode, 1)
        assert ids(index, "faster file:release", mode) == ["Équipe/release-2.5.0.txt"]
        assert (
            ids(index, "rain file:*.jsonl", mode)
            == ids(index, "rain file:equipe/r??s*", mode)
            == ["Équipe/rows.jsonl#1"]
        )
        assert index.search("rain file:*.pdf", mode=mode).missing == ("file:*.pdf",)
    assert len(ids(index, "equipe")) == 4 and ids(index, '"equipe"') == []
    index.store.delete([one.id for one in index.search("rain", mode="lexical")])
    assert ids(index, "jsonl") == [] and index.store.verify() == []


def test_words_that_no_passage_has_are_reported(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    add(index, "set GIT_TRACE or user.name", "a cat sat")
    for mode in ("lexical", "hybrid"):
        missing = index.search("Does (GIT_TRACE_PACKET) zebras cats the GIT_TRACE, user.email?", mode=mode).missing
        assert missing == ("Does", "GIT_TRACE_PACKET", "zebras", "user.email")
    assert index.search("cats", mode="lexical").missing == () == index.search("zebra", mode="dense").missing
    index.store.delete([one.id for one in index.search("cat", 1, mode="lexical")])
    assert index.search("cats", mode="lexical").missing == ("cats",)
    assert run(["search", "trace GIT_TRACE_PACKET", "--store", "store", "--mode", "lexical"]) == 0
    assert capsys.readouterr().err == "no passage has: GIT_TRACE_PACKET\n"
    assert run(["search", "to be", "--store", "store", "--mode", "lexical"]) == 0
    assert "the commonest words count only in quotation marks" in capsys.readouterr().err


def test_words_are_stems_of_the_language_of_the_index(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("de.txt").write_text("Die Häuser stehen im Wald und will not sind hier.")
    assert run(["index", "de.txt", "--store", "german", "--model", str(encoder), "--language", "german"]) == 0
    for _ in range(2):
        with Index.open("german", language="german") as index:
            assert ids(index, "Haus") == ids(index, "wälder hausern") == ids(index, "not") == ["de.txt"]
            (result,) = index.search("haus", mode="lexical")
            assert result.snippet.text.startswith("Die Häuser")
    with Index.open("english", encoder) as index:
        index.add("de.txt")
        assert ids(index, "Haus") == []
    with pytest.raises(UsageError, match="english has language='english', not 'german': omit it"):
        Index.open("english", language="german")
    with pytest.raises(UsageError, match="language='klingon': expected one of arabic, "):
        Index.open("other", encoder, language="klingon")
    assert not Path("other").exists()
