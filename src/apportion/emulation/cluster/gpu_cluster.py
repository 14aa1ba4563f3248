"""An embedded cluster with emulated GPUs: its nodes have them, its containers know `nvidia-smi`, and containers of our
image run as child processes of this one.
"""

from __future__ import annotations

from pathlib import Path

from apportion.apis import names
from apportion.apis.installation import Installation
from apportion.cluster import service_account
from apportion.emulation.cluster import reservations, visible_gpus
from apportion.emulation.cluster.topology import Topology
from pocketkube.clock import Clock
from pocketkube.cluster import EmbeddedCluster
from pocketkube.kubelet.runtime.interpreters import isolated
from pocketkube.kubelet.settings import KubeletSettings
from pocketkube.plugins import CoroutineImage, Plugins, ProcessImage

_VECTOR_ADDITION = """\
echo '[Vector addition of 50000 elements]'
echo 'Copy input data from the host memory to the CUDA device'
echo 'CUDA kernel launch with 196 blocks of 256 threads'
echo 'Copy output data from the CUDA device to the host memory'
echo 'Test PASSED'
echo 'Done'
"""
# The commands of planes. Those for people (`up`, `down`, ...) act on the machine, so no pod may call them.
# The agent gets the files of its container and an address of the cluster also where its pod names none.
_PLANES: dict[str, dict[str, str]] = {
    "webhook": {},
    "scheduler": {},
    "binder": {},
    "operator": {},
    "simulator": {},
    "node": {
        "--kubelet-dir": "/var/lib/kubelet",
        "--cdi-dir": "/var/run/cdi",
        "--state-dir": "/var/lib/apportion",
        "--cgroup-dir": "/sys/fs/cgroup",
        "--listen": "127.0.0.1:9400",
    },
}
_DOWNWARD_VARIABLES = frozenset(("NODE_NAME", "POD_IP", "POD_NAME", "POD_NAMESPACE", "POD_UID", "HOSTNAME"))


def gpu_cluster(
    topology: Topology,
    *,
    kubeconfig: Path,
    name: str = "apportion",
    port: int = 0,
    clock: Clock | None = None,
    kubelet: KubeletSettings | None = None,
    installation: Installation | None = None,
) -> EmbeddedCluster:
    """Not started yet. The planes are installed on it as on any cluster: see `installing`."""
    return EmbeddedCluster(
        topology.nodes(),
        kubeconfig=kubeconfig,
        name=name,
        port=port,
        clock=clock,
        kubelet=kubelet,
        plugins=plugins(installation or Installation()),
    )


def plugins(installation: Installation) -> Plugins:
    """The planes run as child processes: the image of the shipped manifests and the configured one, in the namespaces
    where planes are installed. Reservation pods, of which there may be hundreds, run as coroutines in theirs."""
    images = dict.fromkeys((Installation.image, installation.image))
    namespaces = frozenset(
        (
            installation.namespace,
            installation.sharing_namespace,
            installation.fallback_namespace,
            names.GPU_OPERATOR_NAMESPACE,
        )
    )
    reserving = reservations.Reservations()
    return Plugins(
        programs={"nvidia-smi": "apportion.emulation.cluster.nvidia_smi:program"},
        process_images=[_planes(image, namespaces) for image in images],
        coroutine_images=[
            CoroutineImage(
                image=image,
                namespaces=frozenset((installation.reservation_namespace,)),
                command=reservations.COMMAND,
                main=reserving.main,
            )
            for image in images
        ],
        runtime_files=visible_gpus.files,
        image_commands={"cuda-sample:vectoradd*": ["sh", "-c", _VECTOR_ADDITION]},
    )


def _planes(image: str, namespaces: frozenset[str]) -> ProcessImage:
    return ProcessImage(
        image=image,
        namespaces=namespaces,
        program="apportion",
        command=isolated("apportion"),
        subcommands=_PLANES,
        environment=_DOWNWARD_VARIABLES,
        environment_prefix="APPORTION_",
        service_account_env=service_account.DIRECTORY_ENV,
    )
