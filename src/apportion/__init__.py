"""Apportion: one GPU layer for Kubernetes."""

__version__ = "0.1.0"
