"""An encoder-decoder as the target, its non-autoregressive drafter, and grapheme-to-phoneme data."""
