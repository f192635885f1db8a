"""Counters, gauges and histograms in the Prometheus format, with the names of text-embeddings-inference."""

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence

_SECONDS = [1.5e-5 * 1.5**k for k in range(35)]
_POWERS = [2.0**k for k in range(20)]


class Histogram:
    """A histogram of values."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts = list(bounds), [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> list[str]:
        """The lines in the text format of Prometheus."""
        lines, total = [f"# TYPE {name} histogram"], 0
        for bound, count in zip([*(f"{bound:.6g}" for bound in self.bounds), "+Inf"], self.counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self.sum:.9g}", f"{name}_count {total}"]


class Metrics:
    """Metrics of a server.

    Attributes:
        gauges: functions that return current values, by name.
    """

    def __init__(self) -> None:
        self.gauges: dict[str, Callable[[], float]] = {}
        self._lock = threading.Lock()
        self._counters: dict[str, dict[str, int]] = {
            name: defaultdict(int)
            for name in (
                "te_request_count", "te_request_success", "te_request_failure",
                "te_embed_count", "te_embed_success", "te_predict_count", "te_predict_success",
            )
        }  # fmt: skip
        self._histograms = {
            f"te_{verb}_{part}duration": Histogram(_SECONDS)
            for verb in ("request", "embed", "predict")
            for part in ("", "tokenization_", "queue_", "inference_")
        } | {
            name: Histogram(_POWERS)
            for name in ("te_request_input_length", "te_batch_next_size", "te_batch_next_tokens")
        }

    def count(self, name: str, labels: str = "", number: int = 1) -> None:
        """Add to a counter; ``labels`` such as ``method="single"``."""
        with self._lock:
            self._counters[name][labels] += number

    def observe(self, **values: float) -> None:
        """Count values in histograms, by their names without "te_"."""
        with self._lock:
            for name, value in values.items():
                self._histograms[f"te_{name}"].add(value)

    def count_batch(self, num_sequences: int, num_tokens: int) -> None:
        """Count a batch."""
        self.observe(batch_next_size=num_sequences, batch_next_tokens=num_tokens)

    def text(self) -> str:
        """All metrics in the text format of Prometheus."""
        lines = []
        with self._lock:
            for name, counts in self._counters.items():
                lines.append(f"# TYPE {name} counter")
                lines += [f"{name}{{{labels}}} {n}" if labels else f"{name} {n}" for labels, n in counts.items()]
            for name, histogram in self._histograms.items():
                lines += histogram.lines(name)
        for name, value in self.gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value():g}"]
        return "\n".join(lines) + "\n"
