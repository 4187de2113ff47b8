"""Training of the checkpoints in data/checkpoints: the target's answers, its features, losses, fits, measurements."""
