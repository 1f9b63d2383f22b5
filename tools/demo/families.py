"""The demo models, as far as training, export and evaluation must tell them apart: the modules that each is made of.

Needs nothing but Python until a model or a tokenizer is asked for.
"""
import importlib
import json
import os

import data
import kimi_chat


class Family:
    def __init__(self, talk, architecture, tokenizer):
        self.talk, self._architecture, self._tokenizer = talk, architecture, tokenizer

    @property
    def architecture(self):
        """The module with Model, configured(vocab_size), stored(state) and loaded(tensors)."""
        return importlib.import_module(self._architecture)

    def tokenizer(self, folder):
        return importlib.import_module(self._tokenizer).Tokenizer(folder)


FAMILIES = {"k2": Family(data.Talk, "model", "tokenizer"), "kimi": Family(kimi_chat.Talk, "kimi", "kimi_tokenizer")}


def of(folder):
    """The family of a finished model."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        return FAMILIES["kimi" if json.load(f)["model_type"] == "kimi_k3" else "k2"]
