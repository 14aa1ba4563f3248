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

PLUGINS = Plugins(
    programs={"nvidia-smi": nvidia_smi.program},
    process_images=[
        ProcessImage(Installation.image, (sys.executable, "-m", "apportion"), SERVICE_ACCOUNT_DIR_ENV),
    ],
    image_commands={"cuda-sample:vectoradd*": ["sh", "-c", _VECTOR_ADDITION]},
)


def gpu_cluster(
    topology: Topology,
    *,
    kubeconfig: Path,
    name: str = "apportion",
    port: int = 0,
    clock: Clock | None = None,
    kubelet: KubeletSettings | None = None,
) -> EmbeddedCluster:
    """Not started yet. The planes are installed on it as on any cluster: see `installing`."""
    return EmbeddedCluster(
        topology.nodes(),
        kubeconfig=kubeconfig,
        name=name,
        port=port,
        clock=clock,
        kubelet=kubelet,
        plugins=PLUGINS,
    )
