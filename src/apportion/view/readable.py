"""The view of a reader who may not see everything.

Rights in one namespace show the pods of that namespace: no nodes, GPUs or claims, and no pods of others.
"""

from __future__ import annotations

from dataclasses import dataclass

from apportion.apis.installation import Installation
from apportion.apis.kinds import ALLOCATION_CLAIMS, NODE_ACCELERATORS, NODES, PODS
from apportion.cluster.client import Client
from apportion.view.informers import Informers
from apportion.view.view import View

VIEWER_ROLE = "apportion-viewer"


@dataclass(frozen=True)
class Readable:
    """`hidden` are resources that the reader may not list; `namespace` is the only one whose pods are in the view."""

    view: View
    informers: Informers
    hidden: tuple[str, ...] = ()
    namespace: str = ""

    @property
    def pods(self) -> bool:
        return PODS.plural not in self.hidden

    @property
    def gpus(self) -> bool:
        """Nodes and their GPUs are in the view; without claims their slices would look free."""
        return not {NODES.plural, NODE_ACCELERATORS.plural, ALLOCATION_CLAIMS.plural} & set(self.hidden)

    @property
    def note(self) -> str:
        """What is missing, and which role gives it; empty if nothing is."""
        if not self.hidden:
            return ""
        outside = [f"{PODS.plural} outside namespace {self.namespace}"] if self.namespace else []
        return (
            f"Not visible with your rights: {', '.join([*outside, *self.hidden])}. "
            f"The ClusterRole {VIEWER_ROLE} allows to read them."
        )


async def read(client: Client, installation: Installation, namespace: str) -> Readable:
    """Everything if the rights allow it; otherwise the pods of one namespace, and whatever else can be listed."""
    view = View(reservation_namespace=installation.reservation_namespace)
    informers = Informers(client, view, installation)
    hidden = await informers.load_readable()
    if PODS.plural not in hidden:
        return Readable(view, informers, hidden)
    view = View(reservation_namespace=installation.reservation_namespace)
    informers = Informers(client, view, installation, only_namespace=namespace)
    hidden = await informers.load_readable()
    return Readable(view, informers, hidden, "" if PODS.plural in hidden else namespace)
