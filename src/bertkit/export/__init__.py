"""Models for runtimes without torch: ONNX and OpenVINO.

Takes: a Model.
Gives: a folder with the graph of its encoder and pooling or head, its tokenizer, and a description in JSON.
May import: version, errors, files, tokenizer, batch, transformer, heads, architectures, tasks, inference, model,
evidence.
"""

from bertkit.export.accuracy import Accuracy
from bertkit.export.export import Exported, examples_for, export_model

__all__ = ["Accuracy", "Exported", "examples_for", "export_model"]
