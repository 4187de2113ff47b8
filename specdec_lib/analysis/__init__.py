"""A finished run or recording to numbers and sentences: what notebooks and reports read. Loads no target model."""
