"""An embedded cluster with emulated GPUs: its nodes have them, its containers know `nvidia-smi`, and containers of our
image run as child processes of this one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from apportion.apis.installation import Installation
from apportion.cluster.access import SERVICE_ACCOUNT_DIR_ENV
from apportion.emulation.cluster import nvidia_smi
from apportion.emulation.cluster.topology import Topology
from pocketkube.clock import Clock
from pocketkube.cluster import EmbeddedCluster
from pocketkube.kubelet.settings import KubeletSettings
from pocketkube.plugins import Plugins, ProcessImage

_VECTOR_ADDITION = """\
echo '[Vector addition of 50000 elements]'
echo 'Copy input data from the host memory to the CUDA device'
echo 'CUDA kernel launch with 196 blocks of 256 threads'
echo 'Copy output data from the CUDA device to the host memory'
echo 'Test PASSED'
echo 'Done'
"""


def gpu_cluster(
    topology: Topology,
    *,
    kubeconfig: Path,
    name: str = "apportion",
    port: int = 0,
    clock: Clock | None = None,
    kubelet: KubeletSettings | None = None,
    image: str = Installation.image,
) -> EmbeddedCluster:
    """Not started yet. The planes are installed on it as on any cluster: see `installing`.

    `image` is another name of our image, besides that in the shipped manifests.
    """
    return EmbeddedCluster(
        topology.nodes(),
        kubeconfig=kubeconfig,
        name=name,
        port=port,
        clock=clock,
        kubelet=kubelet,
        plugins=plugins(image),
    )


def plugins(image: str) -> Plugins:
    command = (sys.executable, "-m", "apportion")
    repositories = dict.fromkeys((Installation.image, _repository(image)))
    return Plugins(
        programs={"nvidia-smi": nvidia_smi.program},
        process_images=[ProcessImage(each, command, SERVICE_ACCOUNT_DIR_ENV) for each in repositories],
        image_commands={"cuda-sample:vectoradd*": ["sh", "-c", _VECTOR_ADDITION]},
    )


def _repository(image: str) -> str:
    """`apportion` of `ghcr.io/apportion/apportion:0.1.0`."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]
