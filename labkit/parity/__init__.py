"""PyTorch compared with MindSpore: weights converted, one training step and a short training, stage by stage."""
