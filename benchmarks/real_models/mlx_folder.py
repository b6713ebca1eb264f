"""Writes a Qwen2 model of a GGUF file as a folder that mlx-lm loads.

    python -m benchmarks.real_models.mlx_folder MODEL.gguf FOLDER

The weights are dequantised to float32: MLX multiplies nothing else fast without a GPU. Needs the
package ``gguf``, and two gigabytes for each billion parameters.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_MODULES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
# Fields of config.json, each with the GGUF key that holds its value.
_CONFIG = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "max_position_embeddings": "context_length",
}
# How Qwen2 cuts a text before its byte pairs are merged (tokenizer.json of the model).
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NORMAL, _SPECIAL = 1, (3, 4)  # kinds of tokens in a GGUF file


class _Source:
    """What a GGUF file says about its model."""

    def __init__(self, path: Path) -> None:
        import gguf

        self.reader = gguf.GGUFReader(path)

    def get(self, key: str) -> Any:
        value = self.reader.fields[key].contents()
        return value.item() if hasattr(value, "item") else value


def convert(path: Path, folder: Path) -> None:
    """Write the folder. Raises KeyError for a model of another architecture."""
    source = _Source(path)
    folder.mkdir(parents=True, exist_ok=True)
    weights = _weights(source)
    config = {name: source.get(f"qwen2.{key}") for name, key in _CONFIG.items()}
    config |= {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": len(weights["model.embed_tokens.weight"]),
        "tie_word_embeddings": "lm_head.weight" not in weights,
        "torch_dtype": "float32",
        "eos_token_id": source.get("tokenizer.ggml.eos_token_id"),
    }
    _write(folder / "config.json", config)
    _save_weights(weights, folder / "model.safetensors")
    _save_tokenizer(source, folder)


def _weights(source: _Source) -> dict[str, Any]:
    import numpy
    from gguf.quants import dequantize

    weights = {}
    for tensor in source.reader.tensors:
        module, kind = tensor.name.rsplit(".", 1)
        layer = _LAYER.fullmatch(module)
        name = f"model.layers.{layer[1]}.{_MODULES[layer[2]]}" if layer else _MODULES[module]
        values = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        weights[f"{name}.{kind}"] = values.reshape([int(n) for n in reversed(tensor.shape)])
    return weights


def _save_weights(weights: dict[str, Any], path: Path) -> None:
    from safetensors.numpy import save_file

    save_file(weights, path, metadata={"format": "mlx"})


def _save_tokenizer(source: _Source, folder: Path) -> None:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    tokens = source.get("tokenizer.ggml.tokens")
    kinds = source.get("tokenizer.ggml.token_type")
    vocabulary = {t: n for n, t in enumerate(tokens) if kinds[n] == _NORMAL}
    merges = [tuple(merge.split(" ")) for merge in source.get("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    pieces = pre_tokenizers.Split(Regex(_PIECES), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pieces, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    named = [t for n, t in enumerate(tokens) if kinds[n] in _SPECIAL and not t.startswith("[PAD")]
    for token in named:  # one by one: each gets the next number
        # The marks of calls are text: a server reads the calls between them.
        add = tokenizer.add_special_tokens if token.startswith("<|") else tokenizer.add_tokens
        add([AddedToken(token, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": tokens[source.get("tokenizer.ggml.eos_token_id")],
        "clean_up_tokenization_spaces": False,
        "chat_template": source.get("tokenizer.chat_template"),
    }
    _write(folder / "tokenizer_config.json", about)


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
