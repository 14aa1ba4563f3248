"""What can be wrong with a patch, before anybody knows which object it was for."""

from __future__ import annotations


class PatchError(Exception):
    """A patch that cannot be read or does not apply; the text is what the client is told."""
