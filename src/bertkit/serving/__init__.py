"""HTTP server for models and an index, compatible with common clients.

Takes: models by name, an index, and HTTP requests.
Gives: vectors, predictions, passages, tokens and inspection pages as JSON; concurrent requests share batches.
May import: version, errors, later, files, device, executor, tokenizer, batch, transformer, heads, architectures, tasks,
checkpoint, inference, pages, model, extraction, redaction, generation, search, inspection.
"""
