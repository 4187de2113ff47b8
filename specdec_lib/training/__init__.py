"""How the checkpoints in data/checkpoints were made: the target's answers, its features, losses, fits, measurements."""
