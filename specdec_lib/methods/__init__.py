"""Assembled systems, one file each, naming their parts by card."""
