"""Ways to fill a canvas, one file each."""
