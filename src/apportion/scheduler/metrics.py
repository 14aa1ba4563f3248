"""What the scheduler counts."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

DECISIONS = Counter("apportion_scheduler_decisions_total", "Decisions made, by result.", ["result"])
EXPLANATIONS = Counter(
    "apportion_scheduler_explanations_total", "Explanations computed, one per class of equal requests."
)
COMMITS = Counter("apportion_scheduler_commits_total", "Bindings, by outcome.", ["outcome"])
COMMIT_SECONDS = Histogram("apportion_scheduler_commit_seconds", "Time to write claims and bindings of one group.")
CYCLE_SECONDS = Histogram("apportion_scheduler_cycle_seconds", "Duration of a scheduling cycle.")
PENDING = Gauge(
    "apportion_scheduler_pending_pods",
    "Groups of pending pods, by stage; a pod without a group is one of its own.",
    ["stage"],
)
LEADING = Gauge("apportion_scheduler_leading", "1 if this process is the leader.")
LEFTOVERS = Counter(
    "apportion_scheduler_leftover_claims_total", "Claims deleted because no pod will use them.", ["why"]
)
WAIT_SECONDS = Histogram(
    "apportion_scheduler_wait_seconds",
    "Time from the first observation of a pod to its binding.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200),
)
