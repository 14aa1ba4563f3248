"""What a real cluster is made of, and where each built piece lies.

A piece is either a Go program, built from a module of ours that pins it (the folders beside this file),
or a Debian package that is unpacked, never installed. Every piece has one path in the cache; the path
holds the version and, for Go, a digest of the module's `go.mod` and `go.sum`, so a changed pin is a new
folder and an unchanged one is never built again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
KUBERNETES = "1.34.4"


@dataclass(frozen=True)
class GoProgram:
    """One binary of one of our Go modules."""

    name: str
    module: str
    version: str
    package: str
    ldflags: tuple[str, ...] = ()
    on_demand: bool = False
    """Long to build and needed by few tests: built by name or with --all."""

    @property
    def module_dir(self) -> Path:
        return HERE / self.module

    @property
    def path(self) -> Path:
        return cache() / f"{self.module}-{self.version}-{_pins(self.module)}" / self.name


@dataclass(frozen=True)
class DebianPackage:
    """One file or folder of a Debian package, unpacked into the cache."""

    name: str
    package: str
    inside: str
    on_demand: bool = False

    @property
    def version(self) -> str:
        return _distribution()

    @property
    def root(self) -> Path:
        return cache() / f"{self.package}-{self.version}"

    @property
    def path(self) -> Path:
        return self.root / self.inside


Piece = GoProgram | DebianPackage


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "apportion" / "real"


def pieces() -> dict[str, Piece]:
    """Every piece by name, in the order in which they are best built: what most tests need comes first."""
    return {piece.name: piece for piece in (*_kubectl(), *_control_plane(), *_node(), *_on_demand())}


def located(piece: Piece) -> Path | None:
    """Where the piece can be used from now: KUBEBUILDER_ASSETS, else the cache, else nowhere yet."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and piece.name in {"etcd", "kube-apiserver", "kubectl"}:
        found = shutil.which(piece.name, path=assets)
        if found:
            return Path(found)
    return piece.path if piece.path.exists() else None


def _kubectl() -> tuple[Piece, ...]:
    return (_kubernetes("kubectl"),)


def _control_plane() -> tuple[Piece, ...]:
    etcd = GoProgram("etcd", "etcd", "3.6.4", "go.etcd.io/etcd/server/v3")
    servers = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    return (etcd, *(_kubernetes(name) for name in servers))


def _node() -> tuple[Piece, ...]:
    programs = ("containerd", "containerd-shim-runc-v2", "ctr")
    return (
        DebianPackage("runc", "runc", "usr/sbin/runc"),
        DebianPackage("cni-plugins", "containernetworking-plugins", "usr/lib/cni"),
        DebianPackage("busybox", "busybox-static", "bin/busybox"),
        *(_containerd(name) for name in programs),
        _kubernetes("kubelet"),
    )


def _on_demand() -> tuple[Piece, ...]:
    return (
        GoProgram(
            "helm",
            "helm",
            "3.21.4",
            "helm.sh/helm/v3/cmd/helm",
            ("-X helm.sh/helm/v3/internal/version.version=v3.21.4",),
            on_demand=True,
        ),
        GoProgram(
            "kueue",
            "kueue",
            "0.18.2",
            "sigs.k8s.io/kueue/cmd/kueue",
            ("-X sigs.k8s.io/kueue/pkg/version.GitVersion=v0.18.2",),
            on_demand=True,
        ),
    )


def _kubernetes(name: str) -> GoProgram:
    major, minor, _ = KUBERNETES.split(".")
    stamps = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor}
    # Unstamped, every component calls itself v0.0.0-master, which kubectl and helm take for a very old server.
    ldflags = tuple(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())
    return GoProgram(name, "kubernetes", KUBERNETES, f"k8s.io/kubernetes/cmd/{name}", ldflags)


def _containerd(name: str) -> GoProgram:
    version = "2.1.4"
    ldflags = (f"-X github.com/containerd/containerd/v2/version.Version=v{version}",)
    return GoProgram(name, "containerd", version, f"github.com/containerd/containerd/v2/cmd/{name}", ldflags)


def _pins(module: str) -> str:
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((HERE / module / name).read_bytes())
    return digest.hexdigest()[:8]


def _distribution() -> str:
    """`debian12`: packages of two distributions never share a folder."""
    fields = {}
    release = Path("/etc/os-release")
    if release.exists():
        for line in release.read_text().splitlines():
            key, _, value = line.partition("=")
            fields[key] = value.strip('"')
    return fields.get("ID", "unknown") + fields.get("VERSION_ID", "")
