"""Zero-shot cross-lingual transfer with multilingual encoders."""

__version__ = "0.1.0"
