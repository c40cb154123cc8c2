"""Word alignment: which word of a sentence is the translation of which word of its counterpart."""
