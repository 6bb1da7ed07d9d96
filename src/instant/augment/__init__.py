"""Batched per-sample augmentation on the device: pure functions of (samples, key)."""

from instant.augment.contrast import Part
from instant.augment.policies import Strong, Weak, for_images
from instant.augment.vectors import StrongVector, WeakVector, for_vectors

__all__ = ["Part", "Strong", "StrongVector", "Weak", "WeakVector", "for_images", "for_vectors"]
