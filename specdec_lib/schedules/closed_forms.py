"""Closed forms of serial and parallel schedules: expected tokens and speed where every token is accepted alike.

Units: a draft step takes 1, a forward of the target `ratio` (the papers' c = T_target / T_draft), whatever its width.
Every drafted token is accepted with probability `alpha`, independently of the others. Speeds are times plain decoding.

Sources: serial speculation, Leviathan et al. 2023, section 3. The forms of PEARL (arXiv 2408.11850) and of PPSD
(arXiv 2509.19368) are our derivations from their two-mode chain and from their pipeline; `schedules.simulate` draws the
same rounds and is tested against them.
"""

from __future__ import annotations

from collections.abc import Callable

LONGEST = 64                                       # draft length of the best serial speculation, at most
GRID = 400                                         # acceptances that are tried before bisection


def geometric(alpha: float, count: int) -> float:
    """1 + alpha + ... + alpha^(count - 1): the tokens of a verdict on `count` tests; `count` at alpha = 1."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is a probability, got {alpha}")
    if count < 0:
        raise ValueError(f"a draft has no fewer than 0 tokens, got {count}")
    return float(count) if alpha == 1 else (1 - alpha ** count) / (1 - alpha)


def serial_tokens(alpha: float, length: int) -> float:
    """Tokens of a round of serial speculation, bonus or correction included: (1 - alpha^(g+1)) / (1 - alpha)."""
    return geometric(alpha, length + 1)


def serial_speed(alpha: float, length: int, ratio: float) -> float:
    """Serial speculation: a round takes length + ratio. Length 0 is plain decoding."""
    return ratio * serial_tokens(alpha, length) / (length + positive(ratio))


def best_serial_length(alpha: float, ratio: float, longest: int = LONGEST) -> int:
    """The draft length of the fastest serial speculation, 0 where drafting does not pay; the shortest of equals."""
    return max(range(longest + 1), key=lambda length: serial_speed(alpha, length, ratio))


def best_serial_speed(alpha: float, ratio: float, longest: int = LONGEST) -> float:
    """The speed of serial speculation at its best draft length: at least 1."""
    return serial_speed(alpha, best_serial_length(alpha, ratio, longest), ratio)


def two_mode_tokens(alpha: float, length: int, first: float | None = None) -> float:
    """Tokens of a round of a schedule with PEARL's two modes; `first` is the acceptance of a new draft's first token.

    With nothing pending, a round emits one token, and with probability `first` the rest of its draft is pending. With
    `length` - 1 tokens pending it emits the tokens of a verdict on `length` tests, the last one of the first new
    token. `first` = None takes alpha, and then this is (1 - A) / ((1 - alpha)(1 - A + alpha)) with A = alpha^length.
    Several first tokens (branches) raise `first` alone.
    """
    if length < 1:
        raise ValueError(f"a draft that is made during every forward has at least one token, got {length}")
    head = alpha if first is None else first
    if not 0 <= head <= 1:
        raise ValueError(f"first is a probability, got {head}")
    stays = alpha ** (length - 1) * head           # every test passes, so the next draft is pending again
    return (1 - stays + head * geometric(alpha, length)) / (1 - stays + head)


def two_mode_speed(alpha: float, length: int, ratio: float, first: float | None = None, steps: float | None = None
                   ) -> float:
    """Speed of a schedule with two modes: a round takes the longer of its draft and its forward.

    `steps` are the draft steps of a round: `length` unless drafting in branches, or by retrieval, costs another count.
    """
    return ratio * two_mode_tokens(alpha, length, first) / max(length if steps is None else steps, positive(ratio))


def pearl_speed(alpha: float, ratio: float, length: int | None = None) -> float:
    """PEARL, by default at its matched length; where every token is accepted it is min(length, ratio)."""
    return two_mode_speed(alpha, matched_length(ratio) if length is None else length, ratio)


def matched_length(ratio: float) -> int:
    """The draft length at which neither side waits long: the rounded speed ratio, at least 1."""
    return max(1, round(positive(ratio)))


def pipelined_speed(alpha: float, exit_layer: float, layers: float) -> float:
    """PPSD: the next token starts after the exit layer where the exit is right, else after all layers.

    N / (alpha E + (1 - alpha) N). No unit but layers: the drafter is the beginning of the target.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is a probability, got {alpha}")
    if not 0 < exit_layer <= layers:
        raise ValueError(f"the exit is one of {layers} layers, got {exit_layer}")
    return layers / (alpha * exit_layer + (1 - alpha) * layers)


def break_even(ratio: float, speed: Callable[[float, float], float] = pearl_speed, longest: int = LONGEST,
               tolerance: float = 1e-6) -> float | None:
    """The acceptance from which `speed(alpha, ratio)` stays above serial speculation at its best length, by bisection.

    0.0 where it is never behind, None where it is behind at an acceptance of 1. Below alpha = 1 / ratio no serial
    draft pays, and PEARL, whose drafts delay nothing, is ahead by about alpha^2; that is not called break-even.
    """
    found = ahead_ranges(ratio, speed, longest, tolerance=tolerance)
    return found[-1][0] if found and found[-1][1] == 1 else None


def ahead_ranges(ratio: float, speed: Callable[[float, float], float] = pearl_speed, longest: int = LONGEST,
                 lowest: float = 0.0, tolerance: float = 1e-6) -> list[tuple[float, float]]:
    """The ranges of acceptance, from `lowest` to 1, in which `speed` is not behind serial speculation at its best.

    Their ends are found by bisection. A draft shorter than the ratio falls behind again near an acceptance of 1.
    """
    def ahead(alpha: float) -> bool:
        return speed(alpha, ratio) >= best_serial_speed(alpha, ratio, longest) - 1e-12

    grid = [lowest + (1 - lowest) * step / GRID for step in range(GRID + 1)]
    flags, ends = [ahead(alpha) for alpha in grid], []
    for place in range(GRID):
        if flags[place] != flags[place + 1]:
            under, over = grid[place], grid[place + 1]
            while over - under > tolerance:
                middle = (under + over) / 2
                under, over = (middle, over) if ahead(middle) == flags[place] else (under, middle)
            ends.append(over if flags[place + 1] else under)
    ends = [lowest] * flags[0] + ends + [1.0] * flags[-1]
    return list(zip(ends[::2], ends[1::2], strict=True))


def positive(ratio: float) -> float:
    """The ratio itself; ValueError unless it is above zero."""
    if not ratio > 0:
        raise ValueError(f"a speed ratio is above zero, got {ratio}")
    return ratio
