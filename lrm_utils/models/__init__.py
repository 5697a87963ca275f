"""The models of the course, one module a notebook, generated from the cells that the notebooks mark for export."""

import importlib
import inspect

from IPython.display import Markdown, display


def show(name: str) -> None:
    """Display a model's whole module: the page that closes its notebook."""
    source = inspect.getsource(importlib.import_module(f"{__name__}.{name}"))
    display(Markdown(f"```python\n{source.rstrip()}\n```"))
