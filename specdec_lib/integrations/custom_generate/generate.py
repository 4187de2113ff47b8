"""What transformers runs for `custom_generate=FOLDER`: it copies this file, so the file imports the package by name."""

from __future__ import annotations

from specdec_lib.integrations.transformers import generate_from_folder as generate

__all__ = ["generate"]
