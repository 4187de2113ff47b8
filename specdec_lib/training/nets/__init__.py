"""The trainable form of each drafter."""
