"""From a name to a loaded model: locating folders, the default model, tokenizers."""
