"""The kubelet's device manager: plugins over gRPC, ids for containers, a checkpoint, and the pod-resources service."""
