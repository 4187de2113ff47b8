"""Text from models, files and libraries as a terminal may show it: no character steers the terminal."""

from __future__ import annotations

CONTROLS: dict[int, str | None] = {
    number: "\ufffd" for number in (*range(32), *range(127, 160)) if chr(number) not in "\n\t"}
CONTROLS[ord("\r")] = None                         # half of a line break in some texts
LONGEST = 1000                                     # letters of a line
TURNING = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd")     # Unicode's directions of text


def printable(text: str) -> str:
    """The text with every control character but line break and tab shown as U+FFFD; carriage returns go."""
    return text.translate(CONTROLS)


def one_line(text: str) -> str:
    """The text on one line: what libraries say can hold line breaks, and bytes of the file that they refuse.

    Characters that turn the direction of what follows are shown as U+FFFD too: a file's name may hold them. Of a long
    text the middle is left out, since its end says what to do.
    """
    line = printable(" ".join(text.split())).translate(TURNING)
    return line if len(line) <= LONGEST else f"{line[:LONGEST // 2]} ... {line[-LONGEST // 2:]}"
