"""The grounds that tests stand on: a real Kubernetes on one small machine, and the embedded one beside it.

Everything real lives in a *box*: a process, network and mount namespace of its own. The kernel ends all
processes, mounts and network devices of the box with its first process, so nothing outlives the test run,
however that run ends. `fixtures` is the part that tests see.
"""
