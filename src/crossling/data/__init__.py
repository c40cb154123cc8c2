"""Data sets: readers, the catalogue, memory-mapped rows and batches."""
