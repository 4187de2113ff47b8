"""WHEN: whether to draft this round, from which source, and how far: `(session, dice) -> Budget`."""
