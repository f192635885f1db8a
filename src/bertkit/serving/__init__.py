"""HTTP server for models, compatible with common clients.

Takes: models by name, and HTTP requests.
Gives: vectors, predictions and tokens as JSON; concurrent requests share batches.
May import: version, errors, files, device, executor, tokenizer, batch, transformer, heads, architectures, tasks,
checkpoint, inference, model.
"""
