"""The default scheduler: it binds ordinary pods to nodes."""
