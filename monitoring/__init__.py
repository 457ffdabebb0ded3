"""Capture the internals of a running model, store them, read them back as tensors."""
