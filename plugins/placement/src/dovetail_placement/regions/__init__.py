"""Regions of placed models: formed by partitioners, within limits, numbered, and taken out as models."""
