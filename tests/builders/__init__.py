"""Builders of test objects: pods, nodes, accelerators, claims, and fleets made of them.

    pods            pods as people write them, their containers, and the request that is read from one
    nodes           nodes as the API server stores them
    accelerators    GPU models, what an agent reports about a node's GPUs, and the agent's own pod
    claims          claims of slices
    volumes         storage classes, volume claims and volumes
    groups          queues, groups of pods, and the objects that own pods
    fleets          nodes and GPUs as the deciding code sees them

Objects are plain JSON, so that a test can send them to an API server; `msgspec.convert` makes typed ones.
"""
