"""Linear probes on frozen features: data, features, losses, and a batched L-BFGS that trains thousands at once."""
