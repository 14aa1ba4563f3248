"""What is installed: the same objects for the embedded cluster, a real one, and `kubectl apply -f`.

The files are numbered in the order in which they must be there: namespace, kinds, then plane by plane
first what it may do and then what it is.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import msgspec
import yaml

__all__ = ["files", "load"]

# The C loader is many times faster, where the package was built with it.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def files() -> list[str]:
    """The names of the manifest files, in order."""
    return sorted(entry.name for entry in resources.files(__name__).iterdir() if entry.name.endswith(".yaml"))


def load() -> list[dict[str, Any]]:
    """Every object, in the order in which to apply them; each call gives copies that share nothing."""
    return [document for name in files() for document in _documents(name)]


def _documents(name: str) -> list[dict[str, Any]]:
    text = resources.files(__name__).joinpath(name).read_text()
    read = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    # Anchors make parts of a YAML document one object; through JSON they become separate ones.
    copies: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(read))
    return copies
