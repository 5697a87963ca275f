"""The helper package of the course *Language Representation Models*: data, text, training, checks and figures.

It holds everything the chapters share and no model that a chapter teaches; those live in the notebooks and are
collected, word for word, in `lrm_utils.models`.
"""

from lrm_utils.scale import device, scale, start, threads
from lrm_utils.train import fit

__all__ = ["device", "fit", "scale", "start", "threads"]
__version__ = "0.1.0"
