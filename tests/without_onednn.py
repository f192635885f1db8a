"""A pytest plugin, `-p without_onednn`: torch as on a processor or in a build that has no oneDNN."""

import torch

torch.backends.mkldnn.is_available = lambda: False
torch._C._set_mkldnn_enabled(False)  # torch's own operations do not choose it either
