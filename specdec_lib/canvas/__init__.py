"""Diffusion language models as the target: a canvas of masks is filled in any order, with state and loop of its own."""
