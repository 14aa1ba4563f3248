"""Tables: what `kubectl get` prints, per kind."""
