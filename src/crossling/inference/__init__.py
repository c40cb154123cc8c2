"""Prediction with a trained model: of whole data sets, and of new text."""
