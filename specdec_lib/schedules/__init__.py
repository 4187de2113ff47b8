"""Schedules that draft and verify at the same time; each has the signature of `loop.rounds`."""
