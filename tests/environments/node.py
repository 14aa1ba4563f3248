"""A real node: containerd and a kubelet in a mount namespace of their own, inside the control plane's sandbox.

The kubelet's plugin folder and the CDI folder are constants of Kubernetes, so a node sees its own `/var/lib`,
`/var/log` and `/run`. Several nodes stand side by side, each with its own containerd, cgroup, address and
pod network. Containers find the API server at its service address without any kube-proxy.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.environments import binaries, cgroups, images
from tests.environments.control_plane import ControlPlane
from tests.environments.sandbox import Daemon, run
from tests.environments.waiting import until

SOCKET = "/run/containerd/containerd.sock"


class RealNode:
    """Ready when constructed; ends with the sandbox of its control plane, or before that with `close`."""

    def __init__(
        self,
        plane: ControlPlane,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        self.plane = plane
        number = plane.next_node_number()
        self.name = f"n{number}"
        self.address = f"10.77.1.{number}"
        self.cgroup = f"{plane.sandbox.cgroup}/{self.name}"
        self._number = number
        self._sandbox = plane.sandbox
        self._folder = plane.sandbox.data / self.name
        self._prepare()
        self._anchor = self._make_mounts()
        self.containerd = self._start_containerd()
        self.import_images(images.workload())
        self.kubelet = self.start_kubelet()
        self.await_ready()
        if labels or annotations:
            change = {"metadata": {"labels": dict(labels or {}), "annotations": dict(annotations or {})}}
            plane.api.merge(f"/api/v1/nodes/{self.name}", change)

    @property
    def enter(self) -> list[str]:
        """Command prefix: run this as a process of the node."""
        return ["nsenter", "--target", str(self._anchor.pid), "--mount", "--net", "--pid", "--ipc", "--"]

    def path(self, inside: str) -> Path:
        """Where the machine sees a file of the node, `/run/cdi` for one."""
        return Path(f"/proc/{self._anchor.pid}/root{inside}")

    def run(self, *command: str | Path, timeout: float = 120) -> str:
        return run(self._sandbox, command, mounts_of=self._anchor.pid, timeout=timeout)

    def ctr(self, *args: str | Path) -> str:
        return self.run(binaries.path("ctr"), "--address", SOCKET, "--namespace", "k8s.io", *args)

    def import_images(self, archive: Path) -> None:
        self.ctr("images", "import", "--local", archive)

    def start_kubelet(self) -> Daemon:
        flags = {
            "config": self._folder / "kubelet.json",
            "kubeconfig": self._kubeconfig,
            "hostname-override": self.name,
            "node-ip": self.address,
            "cert-dir": self._folder / "pki",
        }
        command: list[str | Path] = [binaries.path("kubelet"), *(f"--{flag}={value}" for flag, value in flags.items())]
        self._kubelet_began = dt.datetime.now(dt.UTC).replace(microsecond=0)
        self.kubelet = self._start("kubelet", command)
        return self.kubelet

    def await_ready(self, *, within: float = 60) -> None:
        def ready() -> bool:
            self.kubelet.expect_alive()
            self.containerd.expect_alive()
            condition = self._ready_condition()
            # A killed kubelet leaves its last status behind: it must be the status of this kubelet.
            heard = dt.datetime.fromisoformat(condition["lastHeartbeatTime"])
            return condition["status"] == "True" and heard > self._kubelet_began

        until(ready, f"node {self.name} Ready", within=within)

    def _ready_condition(self) -> dict[str, str]:
        status = self.plane.api.get(f"/api/v1/nodes/{self.name}")["status"]
        conditions: dict[str, dict[str, str]] = {entry["type"]: entry for entry in status["conditions"]}
        return conditions["Ready"]

    def processes_of(self, pod_uid: str) -> list[int]:
        """Ids, as the machine counts them, of every process in the pod's cgroups."""
        found: set[int] = set()
        for folder in (cgroups.MOUNT / "pids" / self.cgroup, cgroups.MOUNT / self.cgroup):
            for listing in folder.glob(f"**/pod{pod_uid}/**/cgroup.procs"):
                with suppress(OSError):  # the group went away while we looked
                    found.update(int(line) for line in listing.read_text().split())
        return sorted(found)

    def power_off(self) -> None:
        """Every process ends at once; what lay in memory (`/run`, mounts, cgroups) is gone, the disk is kept."""
        self.kubelet.kill()
        self._kill_all(spare=self._anchor.pid)
        cgroups.remove(self.cgroup)
        # Volumes and root file systems of containers, then `/run` itself; deepest first.
        forget = (
            "awk '$2 ~ \"^(/run|/var/lib/kubelet)/\" {print $2}' /proc/mounts | sort -r"
            ' | while read -r mount; do umount -l "$mount"; done; rm -rf /run/*; mkdir /run/cdi /run/lock'
        )
        self.run("sh", "-c", forget)

    def power_on(self) -> None:
        cgroups.create(self.cgroup)
        self.containerd = self._start_containerd()
        self.start_kubelet()
        self.await_ready()

    def close(self) -> None:
        """The node is lost: its processes are killed, and the Node object is deleted."""
        self.kubelet.kill()
        self._kill_all()
        cgroups.remove(self.cgroup)
        with suppress(RuntimeError):  # there is no bridge before the first pod
            run(self._sandbox, ["ip", "link", "delete", f"pods{self._number}"])
        run(self._sandbox, ["ip", "address", "delete", f"{self.address}/32", "dev", "service0"])
        self.plane.api.delete(f"/api/v1/nodes/{self.name}")

    def _kill_all(self, *, spare: int | None = None) -> None:
        for pid in {*self._own_processes(), *cgroups.processes(self.cgroup)} - {spare}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _own_processes(self) -> list[int]:
        """Of the node itself, shims included; containers have mounts of their own."""
        mounts = Path(f"/proc/{self._anchor.pid}/ns/mnt").readlink()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (folder / "ns/mnt").readlink() == mounts:
                    found.append(int(folder.name))
        return found

    def _prepare(self) -> None:
        for part in ("containerd", "cni", "lib/kubelet", "lib/cni", "log", "pki"):
            (self._folder / part).mkdir(parents=True)
        cgroups.create(self.cgroup)
        run(self._sandbox, ["ip", "address", "add", f"{self.address}/32", "dev", "service0"])
        self._kubeconfig = self.plane.kubeconfig_of(f"system:node:{self.name}", self.name)
        (self._folder / "cni" / "10-pods.conflist").write_text(json.dumps(self._cni()))
        (self._folder / "containerd.toml").write_text(self._containerd_settings())
        (self._folder / "kubelet.json").write_text(json.dumps(self._kubelet_settings()))

    def _make_mounts(self) -> Daemon:
        script = " && ".join(
            (
                f"mount --bind {self._folder}/lib /var/lib",
                f"mount --bind {self._folder}/log /var/log",
                "mount -t tmpfs -o mode=755 tmpfs /run",
                "mkdir /run/cdi /run/lock",
                # Images in memory unpack twice as fast, and overlays work where the disk is an overlay itself.
                f"mount -t tmpfs -o mode=711 tmpfs {self._folder}/containerd",
                # Volumes and network namespaces that containers mount must be seen by the kubelet, and vice versa.
                "mount --make-rshared /",
                f"touch {self._folder}/mounted",
                "exec sleep infinity",
            )
        )
        anchor = self._sandbox.start(
            f"{self.name}-mounts", ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        )
        until((self._folder / "mounted").exists, f"the mounts of {self.name}: {anchor.last_lines()}", within=10)
        return anchor

    def _start_containerd(self) -> Daemon:
        daemon = self._start("containerd", [binaries.path("containerd"), "--config", self._folder / "containerd.toml"])

        def answers() -> bool:
            daemon.expect_alive()
            return (
                subprocess.run(
                    [*self.enter, binaries.path("ctr"), "--address", SOCKET, "version"],
                    capture_output=True,
                    check=False,
                ).returncode
                == 0
            )

        until(answers, "containerd answers")
        return daemon

    def _start(self, name: str, command: list[str | Path]) -> Daemon:
        shims, runc = binaries.path("containerd-shim-runc-v2").parent, binaries.path("runc").parent
        env = {"PATH": f"{shims}:{runc}:/usr/sbin:/usr/bin:/sbin:/bin"}
        return self._sandbox.start(f"{self.name}-{name}", command, mounts_of=self._anchor.pid, env=env)

    def _cni(self) -> dict[str, Any]:
        subnet = {"subnet": f"10.78.{self._number}.0/24"}
        addresses = {"type": "host-local", "ranges": [[subnet]], "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": f"pods{self._number}", "isGateway": True, "ipam": addresses}
        return {"cniVersion": "1.0.0", "name": f"pods-{self.name}", "plugins": [bridge]}

    def _containerd_settings(self) -> str:
        return f"""
version = 3
root = '{self._folder}/containerd'
state = '/run/containerd'

[grpc]
  address = '{SOCKET}'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{images.WORKLOAD}'

[plugins.'io.containerd.cri.v1.runtime']
  # Without CAP_SYS_RESOURCE a container's score cannot be lowered, and its start would fail.
  restrict_oom_score_adj = true
  disable_apparmor = true
  cdi_spec_dirs = ['/etc/cdi', '/var/run/cdi']
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{binaries.path("cni-plugins")}']
  conf_dir = '{self._folder}/cni'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '{binaries.path("runc")}'

[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.internal.v1.opt']
  path = '{self._folder}/opt'
"""

    def _kubelet_settings(self) -> dict[str, Any]:
        signals = (
            "memory.available",
            "nodefs.available",
            "imagefs.available",
            "nodefs.inodesFree",
            "imagefs.inodesFree",
        )
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "healthzBindAddress": self.address,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": ["pods"],
            "evictionHard": dict.fromkeys(signals, "0%"),
            "imageGCHighThresholdPercent": 100,
            "oomScoreAdj": 0,
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            # Nobody serves names there, but without an address the kubelet warns about every pod.
            "clusterDNS": ["10.96.0.10"],
            # Otherwise a change of devices takes up to ten seconds to show in allocatable.
            "nodeStatusUpdateFrequency": "1s",
            "kubeAPIQPS": 500,
            "kubeAPIBurst": 1000,
            "eventRecordQPS": 0,
            "maxPods": 200,
        }
