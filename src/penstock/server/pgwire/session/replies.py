"""What a session says to its client: messages, collected and sent together."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.server.pgwire.protocol import messages
from penstock.server.pgwire.protocol.channel import Buffer, Channel
from penstock.server.pgwire.session.transactions import Warned
from penstock.server.session_settings import Settings

_FLUSH = 64 * 1024
_QUIET = ("warning", "error")


class Replies:
    """Messages on their way to the client, in order."""

    def __init__(self, channel: Channel, settings: Settings) -> None:
        self._channel = channel
        self._settings = settings
        self._out: list[Buffer] = []
        self._size = 0

    def put(self, message: Buffer) -> None:
        self.put_all((message,))

    def put_all(self, buffers: Sequence[Buffer]) -> None:
        self._out += buffers
        self._size += sum(map(len, buffers))
        if self._size >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        if self._out:
            out, self._out, self._size = self._out, [], 0
            self._channel.send(out)

    def notice(self, what: str, *, sqlstate: str = "00000", severity: str = "NOTICE") -> None:
        level = self._settings.get("client_min_messages")
        if level == "error" or (level in _QUIET and severity == "NOTICE"):
            return
        self.put(messages.notice_response(what, severity=severity, sqlstate=sqlstate))

    def warn(self, warned: Warned | None) -> None:
        if warned is not None:
            self.notice(warned.what, sqlstate=warned.sqlstate, severity="WARNING")
