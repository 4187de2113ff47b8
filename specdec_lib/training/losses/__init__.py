"""The losses that fits minimise: masks, targets and weights of each kind of drafter."""
