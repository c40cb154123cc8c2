"""Training runs of an encoder, one file each."""
