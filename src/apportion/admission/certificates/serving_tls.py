"""The TLS settings of the server: its certificate, and which clients may call.

With a client CA, only clients whose certificate it signed get past the handshake: API servers that authenticate
themselves to webhooks. Both parts can change while the server runs; new connections use the new ones.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from apportion.cluster.certificates import KeyPair
from apportion.cluster.errors import ConfigError


class ServingTls:
    """`context` is the one for the next connection."""

    def __init__(self, client_ca: Path | None = None) -> None:
        self._file = client_ca
        self._trusted = ""
        self._pair: KeyPair | None = None
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def context(self) -> ssl.SSLContext:
        return self._context

    @property
    def pair(self) -> KeyPair | None:
        return self._pair

    def refresh(self, pair: KeyPair) -> bool:
        """Serve this pair, and trust the clients that the file says now. True if something changed.

        Raises ConfigError if the file cannot be used; what was served before stays.
        """
        trusted = self._read()
        if (pair, trusted) == (self._pair, self._trusted):
            return False
        context = pair.server_context()
        if self._file is not None:
            try:
                context.load_verify_locations(cadata=trusted)
            except (ssl.SSLError, ValueError) as error:
                raise ConfigError(f"invalid client CA {self._file}: {error}") from error
            context.verify_mode = ssl.CERT_REQUIRED
        self._pair, self._trusted, self._context = pair, trusted, context
        return True

    def _read(self) -> str:
        if self._file is None:
            return ""
        try:
            return self._file.read_text("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the client CA {self._file}: {error}") from error
