"""Measuring trained drafters: teacher-forced, in the decoding loop, and for their cards."""
