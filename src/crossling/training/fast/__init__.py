"""What makes training fast: CUDA graphs, bf16 weights, fused linear layers, CPU operations."""
