"""Large collections, with vectors that cost nothing: 100,000 tiny files, and one large file in flat memory."""

import resource
import time
from pathlib import Path

import numpy as np
import pytest

from bertkit.search.encoder import Encoder
from bertkit.search.index import Index

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def cheap_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    def embed(self: Encoder, texts: list[str], report=None) -> np.ndarray:
        vectors = np.zeros((len(texts), self.identity.dimensions), np.float32)
        vectors[np.arange(len(texts)), [hash(text) % vectors.shape[1] for text in texts]] = 1
        return vectors

    monkeypatch.setattr(Encoder, "embed_document", embed)


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_hundred_thousand_tiny_files(encoder: Path, tmp_path: Path) -> None:
    for number in range(100_000):
        folder = tmp_path / "docs" / f"{number // 1000}"
        if number % 1000 == 0:
            folder.mkdir(parents=True)
        (folder / f"{number}.txt").write_text(f"File {number} speaks of word{number}.")
    with Index.open(tmp_path / "store", encoder) as index:
        started = time.perf_counter()
        assert index.add(tmp_path / "docs").num_embedded == 100_000
        first = time.perf_counter() - started
        (tmp_path / "docs" / "7" / "7007.txt").write_text("Another text.")
        started = time.perf_counter()
        report = index.add(tmp_path / "docs")
        again = time.perf_counter() - started
        assert report.num_embedded == 1 and report.num_unchanged == 99_999
        assert index.search("word4242", 1, mode="lexical")[0].text == "File 4242 speaks of word4242."
    print(f"\n100,000 files in {first:.1f} s, again in {again:.1f} s, {peak_megabytes():.0f} MB")
    assert again < first / 2


def test_large_file_in_flat_memory(encoder: Path, tmp_path: Path) -> None:
    """100 MB; a part of it takes as little memory as the whole."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(5000)])
    with open(tmp_path / "large.txt", "w") as file:
        for _ in range(1000):
            sentences = [" ".join(rng.choice(words, 15)).capitalize() + ".\n" for _ in range(700)]
            file.write("".join(sentences))
    size = (tmp_path / "large.txt").stat().st_size / 1e6
    with Index.open(tmp_path / "store", encoder) as index:
        before, started = peak_megabytes(), time.perf_counter()
        report = index.add(tmp_path / "large.txt")
        seconds = time.perf_counter() - started
        more = peak_megabytes() - before
    print(f"\n{size:.0f} MB, {report.num_passages} passages in {seconds:.1f} s, {more:.0f} MB more")
    assert not report.skipped and report.num_passages > 100_000
    assert more < 500
