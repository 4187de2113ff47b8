"""What a forward costs: measured curves, counted operations, break-even, draft lengths from costs."""
