"""From a recipe to a Run: build, loop, checkpoint, evaluation; and what looks at Runs."""
