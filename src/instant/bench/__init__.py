"""How fast a training step is, and how far from what the device could do: `instant bench step`."""
