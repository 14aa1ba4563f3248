"""What the agent reads and writes on the API server: claims, pods of this node, the NodeAccelerator, the label of the
MIG layout."""
