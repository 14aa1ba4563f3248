"""Whether an object may be stored: the rules of kube-apiserver per kind, in its words."""
