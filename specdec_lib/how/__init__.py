"""HOW: what is kept of a draft, and what comes next: `(session, draft, scores, dice) -> Verdict`."""
