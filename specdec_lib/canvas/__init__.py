"""Diffusion language models as the target: canvases that are filled in any order, with a state and a loop of their own."""
