"""Metrics of the webhook."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

REVIEWS = Counter(
    "apportion_admission_reviews_total",
    "Admission reviews answered, by path and outcome (patched, unchanged, rejected, malformed, overloaded, failed).",
    ["path", "outcome"],
)
SECONDS = Histogram(
    "apportion_admission_review_seconds",
    "Time from the first byte of a review to its answer.",
    ["path"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
IN_FLIGHT = Gauge("apportion_admission_reviews_in_flight", "Admission reviews being read or answered.")
CERTIFICATE_EXPIRY = Gauge(
    "apportion_admission_certificate_expiry_timestamp_seconds", "Expiry time of the serving certificate."
)
