"""The four ways to change an object by describing the change: JSON patch, merge patch, strategic merge patch, apply."""
