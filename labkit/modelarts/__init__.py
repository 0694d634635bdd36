"""Training jobs of ModelArts, and their rehearsal on this machine. Imports no MindSpore."""
