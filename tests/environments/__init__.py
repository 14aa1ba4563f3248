"""Clusters for tests: a real Kubernetes on one small machine, and the embedded one beside it.

Everything real lives in a *sandbox*: a process, network and mount namespace of its own. The kernel ends all
processes, mounts and network devices of the sandbox with its first process, so nothing outlives the test run,
however that run ends. `fixtures` is the part that tests see.
"""
