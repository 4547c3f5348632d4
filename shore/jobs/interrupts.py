"""Ctrl-C and SIGTERM as an event, so that queries are stopped between two calls and not in the middle of one."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def interrupts(stop: threading.Event) -> Iterator[threading.Event]:
    """While inside, the first SIGINT or SIGTERM sets ``stop`` and the event given back; a second one is as usual.

    Outside the main thread, where Python handles no signals, only ``stop`` counts.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        stop.set()
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    try:
        for number in before:
            signal.signal(number, handle)
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
