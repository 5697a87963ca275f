"""The helper package of the course *Language Representation Models*: data, text, training, checks and figures.

It holds everything the chapters share and no model that a chapter teaches; those live in the notebooks and are
collected, word for word, in `lrm_utils.models`.
"""
