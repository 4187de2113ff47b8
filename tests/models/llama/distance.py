"""How far two tensors of logits may be apart."""


CLOSE = 1e-4


def far(a, b) -> float:
    return float((a.double() - b.double()).abs().max())
