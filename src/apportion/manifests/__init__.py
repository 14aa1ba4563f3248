"""What is installed: the same objects for the embedded cluster, a real one, and `kubectl apply -f`.

The files are numbered in the order in which they must be there: namespace, kinds, then plane by plane
first what it may do and then what it is. Folders hold what is installed on its own: `fallback`; and after the others
`default-queues` and `sharing`, which need the kinds to be served.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import msgspec
import yaml

__all__ = ["files", "load"]

# The C loader is many times faster, where the package was built with it.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def files(part: str = "") -> list[str]:
    """The names of the manifest files, in order."""
    return sorted(entry.name for entry in _folder(part).iterdir() if entry.name.endswith(".yaml"))


def load(part: str = "") -> list[dict[str, Any]]:
    """Every object, in the order in which to apply them; each call gives copies that share nothing."""
    return [document for name in files(part) for document in _documents(_folder(part).joinpath(name).read_text())]


def _folder(part: str) -> Traversable:
    root = resources.files(__name__)
    return root.joinpath(part) if part else root


def _documents(text: str) -> list[dict[str, Any]]:
    read = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    # Anchors make parts of a YAML document one object; through JSON they become separate ones.
    copies: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(read))
    return copies
