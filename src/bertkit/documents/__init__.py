"""Documents: the texts of files, with titles, headings and metadata, split into passages.

Takes: paths of files and folders, and which of them to read; or a text with its id.
Gives: Document (`bertkit.Document`); FileOptions, which files of folders are read; PassageOptions, how documents are
split; readers of each kind of file.
May import: later, errors, files, corpus.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.documents.document import Document as Document
    from bertkit.documents.passages import PassageOptions as PassageOptions
    from bertkit.documents.sources import FileOptions as FileOptions

__getattr__, __dir__ = on_demand(__name__)
