"""Grids of bench plans on Ray: a YAML file becomes cells, each is run once and kept, and all end in one dataset."""
