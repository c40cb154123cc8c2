"""Models for ONNX Runtime: the graph of an encoder, its fusion and its heads, and the engine that runs it."""
