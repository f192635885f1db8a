"""Generated texts compared with references: exact matches, BLEU and chrF."""

from collections.abc import Sequence
from types import ModuleType

from bertkit.errors import UsageError, required


def require_sacrebleu() -> ModuleType:
    """The module sacrebleu.

    Raises:
        DependencyError: it is not installed.
    """
    return required("sacrebleu", "BLEU and chrF are computed by sacrebleu", "translation")


def sequence_metrics(generated: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Share of texts that equal their reference, BLEU (Papineni et al. 2002) and chrF (Popovic 2015), 0 to 100.

    BLEU and chrF are computed by sacrebleu, so they are comparable with published scores.

    Raises:
        DependencyError: sacrebleu is not installed.
        UsageError: no texts, or different numbers of texts and references.
    """
    sacrebleu = require_sacrebleu()
    if len(generated) != len(references) or not references:
        raise UsageError(
            f"{len(generated)} texts and {len(references)} references: expected one for each, at least one"
        )
    equal = sum(one.strip() == other.strip() for one, other in zip(generated, references, strict=True))
    return {
        "exact_match": equal / len(references),
        "bleu": sacrebleu.corpus_bleu(list(generated), [list(references)]).score,
        "chrf": sacrebleu.corpus_chrf(list(generated), [list(references)]).score,
    }
