"""What all connections of one server together may take."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True)
class ServerLimits:
    """Counts, bytes and seconds. Every number bounds memory or time that a stranger could take otherwise."""

    connections: int = 512
    """Each takes up to about 100 KiB: TLS state and a read buffer."""
    head_bytes: int = 32 * 1024
    body_bytes: int = 8 * MIB
    held_bytes: int = 64 * MIB
    """Bodies of all connections together, from their first byte until they are answered."""
    handshake_seconds: float = 5.0
    read_seconds: float = 5.0
    """For the head, and again for the body, of one request."""
    idle_seconds: float = 120.0
    """Longer than API servers keep an idle connection (90 s): the side that sends closes it, so no request is lost."""
    linger_seconds: float = 1.0
    """How long the rest of a refused request is read, so that its sender sees the answer."""
