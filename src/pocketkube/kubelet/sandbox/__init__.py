"""The process that interprets the programs of simulated containers, and the kubelets' connection to it."""
