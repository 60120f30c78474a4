"""Inspects a trained agent: nearest neighbours and videos."""
