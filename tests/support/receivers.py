"""Receivers of notifications in the test process: a web server and a mail server that keep what they get."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message as Mail
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Post:
    """One request."""

    headers: Mail
    body: bytes

    @property
    def number(self) -> str:
        return str(self.headers["Notification-ID"])

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = msgspec.json.decode(self.body)
        return found

    def about(self) -> list[tuple[str, str]]:
        """Return what its events say: change, and the alert's id as far as the first hyphen."""
        return [(each["change"], each["alert"]["alertID"].partition("-")[0]) for each in self.events()]


@dataclass
class WebReceiver:
    """A web server. ``answer`` gives the status of each request, and may wait."""

    answer: Callable[[Post], int] = lambda post: 204
    posts: list[Post] = field(default_factory=list)
    url: str = ""

    def about(self) -> list[tuple[str, str]]:
        return [each for post in self.posts for each in post.about()]


@dataclass
class MailReceiver:
    """A mail server. ``refuses``: it refuses every recipient for now."""

    mails: list[Mail] = field(default_factory=list)
    refuses: bool = False
    attempts: int = 0
    port: int = 0

    def subjects(self) -> list[str]:
        return [str(mail["Subject"]) for mail in self.mails]

    def text(self, number: int) -> str:
        """Return a mail's text, whatever its parts are."""
        parts = [part.get_payload(decode=True) for part in self.mails[number].walk() if not part.is_multipart()]
        return "\n".join(part.decode() for part in parts if isinstance(part, bytes))


@contextlib.contextmanager
def web_receiver(answer: Callable[[Post], int] = lambda post: 204) -> Iterator[WebReceiver]:
    """Run a web server at a free port of this machine."""
    receiver = WebReceiver(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name that http.server calls
            post = Post(self.headers, self.rfile.read(int(self.headers["Content-Length"])))
            receiver.posts.append(post)
            status = receiver.answer(post)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", receiver.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    with _running(server):
        yield receiver


@contextlib.contextmanager
def mail_receiver() -> Iterator[MailReceiver]:
    """Run a mail server (RFC 5321, without TLS and login) at a free port of this machine."""
    receiver = MailReceiver()

    class Handler(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def handle(self) -> None:
            self.say("220 receiver")
            while line := self.rfile.readline():
                match line[:4].upper():
                    case b"RCPT" if receiver.refuses:
                        receiver.attempts += 1
                        self.say("451 not now")
                    case b"DATA":
                        self.say("354 go on")
                        content = b""
                        while (line := self.rfile.readline()) != b".\r\n":
                            content += line.removeprefix(b".") if line.startswith(b"..") else line
                        receiver.mails.append(message_from_bytes(content))
                        self.say("250 taken")
                    case b"QUIT":
                        self.say("221 bye")
                        return
                    case _:
                        self.say("250 ok")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    with _running(server):
        yield receiver


@contextlib.contextmanager
def _running(server: socketserver.TCPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
