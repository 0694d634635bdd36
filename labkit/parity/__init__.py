"""Compare PyTorch with MindSpore: convert weights, compare one training step and a short training stage by stage."""
