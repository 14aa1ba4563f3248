"""One pod on its node: admission, volumes, stages, status."""
