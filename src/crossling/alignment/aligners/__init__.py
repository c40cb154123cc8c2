"""Aligners, one file each: its settings, and ``align``, which makes links for a parallel corpus."""
