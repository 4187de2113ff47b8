"""The workbook on speculative decoding: one loop, three rooms (when, what, how), real models, honest numbers."""
