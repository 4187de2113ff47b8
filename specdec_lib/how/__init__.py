"""HOW: which drafted tokens are accepted, and which token follows: `(session, draft, scores, dice) -> Verdict`."""
