"""An encoder, a fusion and heads as one model: saving, loading, the card."""
