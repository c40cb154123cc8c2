"""Word alignment: one file per aligner, and what they share: links, symmetrization, scores."""
