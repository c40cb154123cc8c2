"""Zero-shot cross-lingual transfer with multilingual encoders.

>>> import crossling
>>> model = crossling.finetune("multilingual-e5-small", "ner", "phrasebook-ner:en")  # doctest: +SKIP
>>> crossling.evaluate(model, "phrasebook-ner", ["de", "hi"])  # doctest: +SKIP
>>> crossling.predict(model, ["Marie wohnt in Berlin."], language="de")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crossling.models.registration import register_when_loaded

if TYPE_CHECKING:
    from crossling.api import evaluate, finetune, load, load_encoder, predict, run, save, to_frame

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "finetune", "load", "load_encoder", "predict", "run", "save", "to_frame"]


def __getattr__(name: str) -> Any:
    """The public names, imported when first used: importing the package alone costs nothing."""
    if name in __all__:
        from crossling import api

        return getattr(api, name)
    raise AttributeError(f"module 'crossling' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__


register_when_loaded()
