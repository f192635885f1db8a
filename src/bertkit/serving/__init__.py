"""Models and an index as a service over HTTP, in the shapes that people's clients already speak.

Takes: models by name, an index, and HTTP requests.
Gives: vectors, predictions, passages and tokens as JSON; batches are shared by the requests that wait at the same time.
May import: version, errors, files, device, executor, tokenizer, batch, transformer, heads, architectures, tasks,
checkpoint, inference, model, search.
"""
