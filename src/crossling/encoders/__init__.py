"""Encoders: loading, tokenization, vocabulary, coverage, masked-word heads."""
