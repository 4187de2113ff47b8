"""What policies and rules ask of every row of logits, computed on the device and moved to the host at once."""

from __future__ import annotations

import torch
from torch import Tensor

from specdec_lib.scores import RowStats
from specdec_lib.topk import top_k


def row_stats_of(logits: Tensor, ids: Tensor | None, k: int = 8) -> RowStats:
    """Top k, log-sum-exp and entropy of every row, moved to the host in one transfer."""
    value, column = top_k(logits, min(k, logits.shape[1]))
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))         # sums over V in 16 bits would be rough
    lse = torch.logsumexp(wide, -1)
    entropy = lse - ((wide - lse[:, None]).exp() * wide).sum(-1)
    column = column if ids is None else ids.to(column.device)[column]
    packed = torch.cat((value.double(), column.double(), lse[:, None].double(), entropy[:, None].double()), 1).cpu()
    value, column = packed[:, :value.shape[1]], packed[:, value.shape[1]:-2].long()
    return RowStats(column, value.to(logits.dtype), tuple(range(len(logits))), tuple(packed[:, -2].tolist()),
                    tuple(packed[:, -1].clamp(min=0).tolist()))
