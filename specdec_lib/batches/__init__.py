"""Several sequences decoded at once: each keeps its own session, drafter and rule; the target's forward is shared."""
