"""Regions of placed models: formed by partitioners, within limits, numbered, and extracted as models."""
