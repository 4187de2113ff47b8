"""WHAT: which tokens to draft, as a tree: `(session, budget, dice) -> Draft`."""
