"""The policies that others published, on plain arrays, to be compared with.

They score every node that fits from 0 to 100, cut to a whole number, and the node of lowest rank wins ties.
Scores are kept per kind of pod and worked out again for nodes that changed.

    first-fit   the first node that fits
    best-fit    least CPU and GPU left, each as a share of the largest node
    dot-product least alignment of what is free and what is asked for
    fgd         least growth of GPU that the typical pods could not use (USENIX ATC '23)
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from apportion.lab.trace import MILLI, Arrival, Trace, TracePod

Numbers = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]

MOST_CPU = 128_000
MOST_GPU = 8_000
_TYPICAL_PERCENT = 95


class Cluster:
    """The nodes of a trace as arrays, in the order of their ranks."""

    def __init__(self, trace: Trace, arrival: Arrival) -> None:
        order = np.argsort(np.array(arrival.node_rank))
        nodes = [trace.nodes[number] for number in order]
        self.cpu: Numbers = np.array([node.cpu for node in nodes], np.int64)
        self.memory: Numbers = np.array([node.memory for node in nodes], np.int64)
        width = max(node.gpus for node in nodes)
        self.left: Numbers = np.array([[MILLI] * n.gpus + [0] * (width - n.gpus) for n in nodes], np.int64)
        self.models = sorted({node.model for node in nodes})
        self.model: Numbers = np.array([self.models.index(node.model) for node in nodes], np.int64)
        self.has_gpus = np.array([node.gpus > 0 for node in nodes])


class Baseline:
    """Places pods one at a time. A subclass says what a node is worth to a pod."""

    def __init__(self, trace: Trace, arrival: Arrival) -> None:
        self.cluster = Cluster(trace, arrival)
        self._changes: list[int] = []
        self._kinds: dict[TracePod, _Kind] = {}

    def place(self, pod: TracePod) -> bool:
        kind = self._kinds.get(pod)
        if kind is None:
            kind = self._kinds[pod] = _Kind(len(self.cluster.cpu), len(self._changes))
            self._update(kind, pod, np.flatnonzero(self._open_to(pod)))
            kind.open = self._open_to(pod)
        else:
            changed = np.unique(np.array(self._changes[kind.seen :], np.int64))
            kind.seen = len(self._changes)
            self._update(kind, pod, changed[kind.open[changed]])
        number = int(kind.scores.argmax())
        if kind.scores[number] < 0:
            return False
        self._take(number, pod, int(kind.gpu[number]))
        return True

    def score(self, pod: TracePod, rows: Numbers) -> tuple[Scores, Numbers]:
        """For nodes that fit: their scores, and the GPU for a pod that asks for a part of one."""
        raise NotImplementedError

    def tightest_gpu(self, pod: TracePod, rows: Numbers) -> Numbers:
        left = self.cluster.left[rows]
        tightest: Numbers = np.where(left >= pod.milli, left, MILLI + 1).argmin(axis=1)
        return tightest

    def _open_to(self, pod: TracePod) -> npt.NDArray[np.bool_]:
        if not pod.gpus:
            return np.ones(len(self.cluster.cpu), np.bool_)
        if not pod.models:
            return self.cluster.has_gpus
        named = [self.cluster.models.index(model) for model in pod.models if model in self.cluster.models]
        return np.isin(self.cluster.model, named)

    def _update(self, kind: _Kind, pod: TracePod, rows: Numbers) -> None:
        cluster = self.cluster
        fits = (cluster.cpu[rows] >= pod.cpu) & (cluster.memory[rows] >= pod.memory)
        if pod.gpus:
            fits &= (cluster.left[rows] >= pod.milli).sum(axis=1) >= pod.gpus
        kind.scores[rows] = -1.0
        rows = rows[fits]
        if len(rows):
            kind.scores[rows], kind.gpu[rows] = self.score(pod, rows)

    def _take(self, number: int, pod: TracePod, gpu: int) -> None:
        cluster = self.cluster
        cluster.cpu[number] -= pod.cpu
        cluster.memory[number] -= pod.memory
        if pod.gpus == 1 and pod.milli < MILLI:
            cluster.left[number, gpu] -= pod.milli
        elif pod.gpus:
            cluster.left[number, np.flatnonzero(cluster.left[number] == MILLI)[: pod.gpus]] = 0
        self._changes.append(number)


class _Kind:
    """Pods that ask for the same: the score of every node, -1 where they do not fit."""

    def __init__(self, nodes: int, seen: int) -> None:
        self.scores: Scores = np.full(nodes, -1.0)
        self.gpu: Numbers = np.zeros(nodes, np.int64)
        self.open = np.zeros(nodes, np.bool_)
        self.seen = seen


class FirstFit(Baseline):
    def score(self, pod: TracePod, rows: Numbers) -> tuple[Scores, Numbers]:
        first: Numbers = (self.cluster.left[rows] >= pod.milli).argmax(axis=1)
        return np.zeros(len(rows)), first


class BestFit(Baseline):
    def score(self, pod: TracePod, rows: Numbers) -> tuple[Scores, Numbers]:
        cpu = (self.cluster.cpu[rows] - pod.cpu) / MOST_CPU
        gpu = (self.cluster.left[rows].sum(axis=1) - pod.gpu) / MOST_GPU
        return np.trunc((1.0 - (cpu * 0.5 + gpu * 0.5)) * 100.0), self.tightest_gpu(pod, rows)


class DotProduct(Baseline):
    def score(self, pod: TracePod, rows: Numbers) -> tuple[Scores, Numbers]:
        cpu = self.cluster.cpu[rows] / MOST_CPU * (pod.cpu / MOST_CPU)
        gpu = self.cluster.left[rows].sum(axis=1) / MOST_GPU * (pod.gpu / MOST_GPU)
        return np.trunc(100.0 * (1.0 - (cpu + gpu) / 2)), self.tightest_gpu(pod, rows)


class FragmentationGradient(Baseline):
    """The growth of a node's unusable GPU goes through a sigmoid, which is what the published runs ranked by."""

    def __init__(self, trace: Trace, arrival: Arrival) -> None:
        super().__init__(trace, arrival)
        typical = _typical(trace)
        self._cpu = np.array([pod.cpu for pod, _ in typical])
        self._milli = np.array([pod.milli for pod, _ in typical])
        self._gpus = np.array([pod.gpus for pod, _ in typical])
        self._share = np.array([share for _, share in typical])
        models = self.cluster.models
        self._open = np.array([[not pod.models or model in pod.models for pod, _ in typical] for model in models])

    def score(self, pod: TracePod, rows: Numbers) -> tuple[Scores, Numbers]:
        cluster = self.cluster
        cpu, left, model = cluster.cpu[rows], cluster.left[rows], cluster.model[rows]
        before = self._unusable(cpu, left, model)
        if pod.gpus != 1 or pod.milli == MILLI:
            whole = left == MILLI
            taken = whole & (np.cumsum(whole, axis=1) <= pod.gpus)
            after = self._unusable(cpu - pod.cpu, left - taken * MILLI, model)
            return _sigmoid(before - after), np.zeros(len(rows), np.int64)
        best: Scores = np.full(len(rows), -1.0)
        chosen: Numbers = np.zeros(len(rows), np.int64)
        for gpu in range(left.shape[1]):
            fits = np.flatnonzero(left[:, gpu] >= pod.milli)
            changed = left[fits].copy()
            changed[:, gpu] -= pod.milli
            scores = _sigmoid(before[fits] - self._unusable(cpu[fits] - pod.cpu, changed, model[fits]))
            better = scores > best[fits]
            best[fits[better]], chosen[fits[better]] = scores[better], gpu
        return best, chosen

    def _unusable(self, cpu: Numbers, left: Numbers, model: Numbers) -> Scores:
        fitting = left[:, None, :] >= self._milli[None, :, None]
        total = left.sum(axis=1)
        too_small = total[:, None] - np.where(fitting, left[:, None, :], 0).sum(axis=2)
        hosted = (fitting.sum(axis=2) >= self._gpus) & (cpu[:, None] >= self._cpu) & self._open[model]
        hosted &= self._milli > 0
        lost: Scores = (np.where(hosted, too_small, total[:, None]) * self._share).sum(axis=1)
        return lost


BASELINES: dict[str, type[Baseline]] = {
    "first-fit": FirstFit,
    "best-fit": BestFit,
    "dot-product": DotProduct,
    "fgd": FragmentationGradient,
}


def _sigmoid(gain: Scores) -> Scores:
    return np.trunc(100.0 / (1.0 + np.exp(-gain / MILLI)))


def _typical(trace: Trace) -> list[tuple[TracePod, float]]:
    """The commonest pods that make up most of the list, with their share among these. Memory plays no part."""
    counts = Counter(pod._replace(memory=0) for pod in trace.pods)
    ordered = sorted(counts.items(), key=_commonness, reverse=True)
    chosen: list[tuple[TracePod, int]] = []
    reached = 0
    for pod, count in ordered:
        if reached * 100 >= _TYPICAL_PERCENT * len(trace.pods):
            break
        chosen.append((pod, count))
        reached += count
    return [(pod, count / reached) for pod, count in chosen]


def _commonness(entry: tuple[TracePod, int]) -> tuple[int, int, int, int, str]:
    pod, count = entry
    return count, pod.cpu, pod.milli, pod.gpus, "|".join(pod.models)
