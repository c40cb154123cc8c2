"""Tables and pages of a run, computed from stored predictions without a model."""
