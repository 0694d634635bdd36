"""The processes of one training: started, watched, and ended together."""
