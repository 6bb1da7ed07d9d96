"""Methods compared over seeds: the runs, what they say together, and whether that is more than luck."""

from instant.compare.results import Comparison, Failure, Result
from instant.compare.train import compare_methods

__all__ = ["Comparison", "Failure", "Result", "compare_methods"]
