"""Redaction: texts without formatted identifiers, names and places.

Takes: a text, or a stream of pieces of a text; optionally what finds names, such as a tagger.
Gives: the same text with placeholders, what was replaced and where, and a key that reverses it.
May import: later, errors, files, extraction.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.redaction.key import Key as Key
    from bertkit.redaction.redactor import Redaction as Redaction
    from bertkit.redaction.redactor import RedactionReport as RedactionReport
    from bertkit.redaction.redactor import RedactionSteps as RedactionSteps
    from bertkit.redaction.redactor import Redactor as Redactor
    from bertkit.redaction.redactor import Replacement as Replacement

__getattr__, __dir__ = on_demand(__name__)
