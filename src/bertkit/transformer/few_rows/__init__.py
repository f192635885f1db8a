"""All layers of a few rows in one compiled function: a short text, or a step of generation.

`prepared` chooses and packs, `layers` computes a layer, with the `products` of `tiles` and one kind of `attention`;
`weights` compares products with those of the layers one after the other.
"""
