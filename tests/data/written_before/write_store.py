"""Write the folder `store`: run in this folder with the code of commit 0f038841, whose stores have format 2."""

import shutil
from pathlib import Path

from bertkit.search.documents import Document
from bertkit.search.index import Index

TEXTS = ["हिन्दी में लिखा है", "the cat sat", "דג שָׁט בַּיָּם", "ภาษาไทย"]


def main() -> None:
    shutil.rmtree("store", ignore_errors=True)
    with Index.open("store", "encoder", device="cpu") as index:
        index.add([Document(str(row), text) for row, text in enumerate(TEXTS)])
        index.store.compact()
    Path("store", "writer.lock").unlink()


if __name__ == "__main__":
    main()
