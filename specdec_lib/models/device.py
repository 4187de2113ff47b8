"""The two ways between host and device: numbers to the device without waiting, and results back in one transfer.

Every copy to the host waits for the device, so the hot path has one seam for it, which tests count.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def to_device(numbers: Sequence[int], device: torch.device) -> Tensor:
    """These whole numbers as a tensor there; the host does not wait for the copy."""
    return torch.tensor(numbers, dtype=torch.long).to(device, non_blocking=True)


def wait_for_stream() -> None:
    """Returns when a GPU has done what this thread launched.

    Not the whole device: such a wait ends what another thread captures in a CUDA graph, and waits for its drafts.
    """
    torch.cuda.current_stream().synchronize()


def to_host(tensor: Tensor) -> Tensor:
    """The tensor on the host, when the device has computed it: the one transfer of a step."""
    return tensor.cpu()
