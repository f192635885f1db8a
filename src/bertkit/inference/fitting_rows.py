"""Examples that are short enough for a model."""

from collections.abc import Iterable, Iterator
from typing import Any

from bertkit.errors import DataError, OverLengthError
from bertkit.inference.runner import chunks
from bertkit.tasks.task import TextTask
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.layout import Layout


def fitting(
    task: TextTask, tokenizer: Tokenizer, layout: Layout, examples: Iterable[Any], skipped: list[str]
) -> Iterator[Any]:
    """Examples that are not too long for a layout, in order and as they are read; the others are added to ``skipped``,
    with their reasons.

    Raises:
        DataError: every example is too long.
    """
    has_any, num_before = False, len(skipped)

    def why_too_long(some: list[Any]) -> str:
        try:
            task.encode(tokenizer, some, layout)
        except OverLengthError as error:
            return str(error)
        return ""

    for chunk in chunks(examples, num_characters=lambda example: example.num_characters):
        is_one_too_long = bool(why_too_long(chunk))
        for example in chunk:
            if is_one_too_long and (why := why_too_long([example])):
                skipped.append(why)
            else:
                has_any = True
                yield example
    if len(skipped) > num_before and not has_any:
        raise DataError(f"no row can be used; {len(skipped) - num_before} were skipped, the last: {skipped[-1]}")
