"""An ASGI application served over HTTP on this machine, for tests that need a real server."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn

from tests.support.waits import until


@contextlib.contextmanager
def served(app: Any, port: int = 0, *, lifespan: bool = False) -> Iterator[str]:
    """Serve an application from a thread, and yield its address, ``http://127.0.0.1:PORT``.

    ``port`` 0 chooses a free one. With ``lifespan``, what the application does beside answers runs too. At the end open
    connections are cut, event streams among them.
    """
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        config = uvicorn.Config(app, log_level="warning", lifespan="on" if lifespan else "off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="served")
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive(), "the server to start")
            assert server.started
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would tell of each stream that is cut
            server.should_exit = server.force_exit = True
            thread.join()
