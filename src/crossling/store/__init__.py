"""The store: artefacts by identity, leases, an archive on any file system that fsspec knows."""
