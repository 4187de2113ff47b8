"""Measures whole runs: plan, environment, runners, results, summary, peers and provenance."""
