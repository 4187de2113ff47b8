"""A clock for tests that time something."""


class Ticks:
    """Seconds that jump by what is next in a list, over and over."""

    def __init__(self, *steps: float):
        self.steps, self.calls, self.now = steps, 0, 0.0

    def __call__(self) -> float:
        self.now += self.steps[self.calls % len(self.steps)]
        self.calls += 1
        return self.now
