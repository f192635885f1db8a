"""Transformers prepared for inference: copies of the weights, packed for a precision, and fused steps.

`encoder.py`: an encoder of any family; `decoder.py`: a stack that generates, with a cache; `layer.py`: the layer of
both; `float_steps.py` and `int8_steps.py`: its steps in a precision; `weight_versions.py`: when to prepare again.
"""
