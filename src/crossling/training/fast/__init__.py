"""What makes training fast: CUDA graphs, bf16 weights, fused linear layers and kernels, CPU operations."""
