"""What the binder counts."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

BINDINGS = Counter("apportion_binder_bindings_total", "BindRequests carried out, by result.", ["result"])
BIND_SECONDS = Histogram(
    "apportion_binder_bind_seconds",
    "Time from the first observation of a BindRequest to the binding of its pod.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80),
)
RESERVATIONS = Gauge("apportion_binder_reservations", "Reservation pods of shared GPUs.")
RESTORED = Counter("apportion_binder_restored_reservations_total", "Reservation pods created again for running pods.")
WRITES = Counter("apportion_binder_writes_total", "Writes to the API server, events apart.", ["verb", "resource"])
LEADING = Gauge("apportion_binder_leading", "1 if this process is the leader.")
