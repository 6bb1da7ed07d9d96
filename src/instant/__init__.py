"""instant: semi-supervised learning with instance-dependent thresholds."""

__version__ = "0.1.0"
