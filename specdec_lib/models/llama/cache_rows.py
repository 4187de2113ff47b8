"""Which tokens the rows of a cache hold: which rows of a new call are there already, and which have to move.

The rows are the flat sequence of the last call: the context's tokens, then the draft's nodes. The next call is compared
with them: the common prefix stays, rows on the accepted path of the last draft move behind it, the rest is dropped.
So callers need no rollback. Knows nothing about tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec_lib.types import ROOT, Draft


class CacheRows:
    """`tokens` and `draft` are the flat sequence; the first len(`depth`) rows of it are computed.

    `depth[i]` is the number of layers that row i has passed; it never rises along the rows, because all earlier rows
    are computed at a layer before a later row is.
    """

    def __init__(self):
        self.tokens: tuple[int, ...] = ()
        self.draft = Draft()
        self.depth: list[int] = []

    def __len__(self) -> int:
        return len(self.depth)

    def align(self, tokens: tuple[int, ...], draft: Draft) -> tuple[int, list[int]]:
        """Keeps the leading rows of tokens + draft that are cached; returns which rows have to move.

        (first, sources): the content of row sources[i] moves to row first + i. Sources rise.
        """
        held, moves = len(self.depth), (0, [])
        same = common(self.tokens[:held], tokens)
        if same == len(self.tokens):
            nodes = held - same
            if same == len(tokens):
                same += min(nodes, common_nodes(self.draft, draft))
            else:
                path = accepted_path(self.draft, nodes, tokens[same:])
                moves = self.accept(path)
                same += len(path)
        del self.depth[same:]
        self.tokens, self.draft = tokens, draft
        return moves

    def accept(self, path: Sequence[int]) -> tuple[int, list[int]]:
        """Puts the rows of these nodes behind the context; those at the front of the draft are in place already."""
        base = len(self.tokens)
        self.depth[base:] = [self.depth[base + node] for node in path]
        moved = next((i for i, node in enumerate(path) if i != node), len(path))
        return base + moved, [base + node for node in path[moved:]]

    def position(self, row: int) -> int:
        """The position of this row in its own path, from 0."""
        ahead = len(self.tokens)
        return row if row < ahead else ahead - 1 + self.draft.depths[row - ahead]

    def flat(self, start: int, stop: int) -> tuple[int, ...]:
        """The tokens of these rows."""
        ahead = len(self.tokens)
        return self.tokens[start:stop] + self.draft.tokens[max(0, start - ahead):max(0, stop - ahead)]

    def chain(self, stop: int) -> bool:
        """Whether each row before `stop` follows the one before it, as in plain text."""
        return stop <= len(self.tokens) or self.draft.depths[-1] == len(self.draft)

    def follows(self, tokens: tuple[int, ...]) -> bool:
        """Whether these tokens continue the cached context, so that accepted nodes may be among them."""
        ahead = len(self.tokens)
        return ahead < len(tokens) and ahead <= len(self.depth) and tokens[:ahead] == self.tokens

    def fed(self, tokens: tuple[int, ...], depth: int) -> int:
        """How many leading tokens are cached as context, at least `depth` layers deep."""
        same = min(common(self.tokens[:len(self.depth)], tokens), len(self.depth))
        while same and self.depth[same - 1] < depth:
            same -= 1
        return same

    def shallow(self, depth: int) -> int:
        """The first row that has not passed this many layers."""
        row = len(self.depth)
        while row and self.depth[row - 1] < depth:
            row -= 1
        return row


def common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Length of the common prefix, found by comparing slices: microseconds for thousands of tokens."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:                          # a[:low] agrees, a[:high] does not
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def common_nodes(a: Draft, b: Draft) -> int:
    """How many leading nodes two drafts share, parents included."""
    return min(common(a.tokens, b.tokens), common(a.parents, b.parents))


def accepted_path(draft: Draft, nodes: int, following: tuple[int, ...]) -> list[int]:
    """The path through the first `nodes` nodes that spells a beginning of these tokens."""
    node, path = ROOT, []
    if not nodes:
        return path
    for token in following:
        node = next((child for child in draft.children.get(node, ())
                     if child < nodes and draft.tokens[child] == token), None)
        if node is None:
            break
        path.append(node)
    return path
