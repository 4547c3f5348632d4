"""The keys that steer a voyage in its terminal: space or p pauses and goes on, q ends it."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulators.helm import Helm


def usable() -> bool:
    """Whether this process may read keys: its terminal is there, and it is not in the background."""
    return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


@contextmanager
def keys(helm: Helm) -> Iterator[bool]:
    """Read keys in the running event loop; the terminal is as before afterwards. False where there are none."""
    if not usable():
        yield False
        return
    stdin, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(stdin)

    def listen() -> None:
        if usable():  # in the background a process may not change the terminal
            tty.setcbreak(stdin)

    def pressed() -> None:
        for key in os.read(stdin, 64).decode(errors="replace"):
            if key in " pP":
                helm.toggle()
            elif key in "qQ":
                helm.quit()

    listen()
    helm.on_continued = listen  # after Ctrl-Z the shell has had the terminal
    loop.add_reader(stdin, pressed)
    try:
        yield True
    finally:
        loop.remove_reader(stdin)
        if usable():
            termios.tcsetattr(stdin, termios.TCSADRAIN, before)
