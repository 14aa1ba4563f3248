"""How the fleet keeps its books: what pods hold, how changes are undone, what changed lately, its state as bytes."""
