"""The demo models, as far as training, export and evaluation must tell them apart: the modules that each is made of.

Needs nothing but Python until a model or a tokenizer is asked for.
"""
import importlib
import json
import os

import data
import kimi_chat


class Family:
    """`share`: how much of evaluate.py's thresholds the model is held to."""

    def __init__(self, talk, architecture, tokenizer, share):
        self.talk, self.share, self._architecture, self._tokenizer = talk, share, architecture, tokenizer

    @property
    def architecture(self):
        """The module with Model, configured(vocab_size), stored(state) and loaded(tensors)."""
        return importlib.import_module(self._architecture)

    def tokenizer(self, folder):
        return importlib.import_module(self._tokenizer).Tokenizer(folder)


FAMILIES = {"k2": Family(data.Talk, "model", "tokenizer", 1.0), "kimi": Family(kimi_chat.Talk, "kimi", "kimi_tokenizer", 0.9)}


def of(folder):
    """The family of a finished model."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        return FAMILIES["kimi" if json.load(f)["model_type"] == "kimi_k3" else "k2"]
