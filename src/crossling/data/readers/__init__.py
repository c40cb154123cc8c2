"""Readers of file formats, one file each."""
