"""Controllers that create pods: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs."""
