"""Data: files on disk, and the pipelines that feed them to a network."""
