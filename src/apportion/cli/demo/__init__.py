"""`apportion demo`: the story of slices on an embedded cluster, drawn as it happens."""
