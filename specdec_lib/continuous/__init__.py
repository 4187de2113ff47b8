"""Speculative decoding of continuous tokens: image patches as real vectors, densities instead of probabilities.

Source: Continuous Speculative Decoding (arXiv 2411.11925). The rule on densities is exact for Gaussian mixtures, and
for diffusion heads given the noise that target and draft share; what the published code does otherwise are options.
"""
