"""What the scheduler counts."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

DECISIONS = Counter("apportion_scheduler_decisions_total", "Decisions made, by result.", ["result"])
EXPLANATIONS = Counter(
    "apportion_scheduler_explanations_total", "Explanations worked out, one for all pods that ask for the same."
)
COMMITS = Counter("apportion_scheduler_commits_total", "Bindings carried out, by outcome.", ["outcome"])
COMMIT_SECONDS = Histogram("apportion_scheduler_commit_seconds", "Time to write claims and bindings of one group.")
ROUND_SECONDS = Histogram("apportion_scheduler_round_seconds", "Time of one round of decisions.")
PENDING = Gauge("apportion_scheduler_pending_pods", "Pods that wait for a node, by stage.", ["stage"])
LEADING = Gauge("apportion_scheduler_leading", "1 while this process leads.")
LEFTOVERS = Counter(
    "apportion_scheduler_leftover_claims_total", "Claims removed because no pod will use them.", ["why"]
)
WAIT_SECONDS = Histogram(
    "apportion_scheduler_wait_seconds",
    "Time from first sight of a pod to its binding.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200),
)
