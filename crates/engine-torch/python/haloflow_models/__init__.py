"""Brings models into the forms that haloflow runs: bundles, exported programs and compiled packages. See docs/MODELS.md."""
