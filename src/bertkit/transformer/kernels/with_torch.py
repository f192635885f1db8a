"""The kernels of `steps` that are functions of torch, which inference without it does not import."""

from bertkit.transformer.kernels import device_attention, device_steps, trained_steps

__all__ = ["device_attention", "device_steps", "trained_steps"]
