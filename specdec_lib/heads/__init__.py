"""Trained networks that draft from a target's hidden states or tokens."""
