"""Small worlds without downloads, for tests and first examples."""
