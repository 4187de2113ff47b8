"""Measurement of whole runs: prompts, interleaving, peers, provenance, notebooks as reports."""
