"""A Llama in torch, for training only; its weights have the names mlx-lm looks for."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


@dataclass
class Config:
    vocab_size: int
    hidden_size: int = 128
    intermediate_size: int = 352
    num_hidden_layers: int = 5
    num_attention_heads: int = 4
    num_key_value_heads: int = 4
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500000.0
    max_position_embeddings: int = 8192


class Block(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        d = c.hidden_size
        self.heads = c.num_attention_heads
        self.input_layernorm = nn.RMSNorm(d, eps=c.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(d, eps=c.rms_norm_eps)
        self.self_attn = nn.ModuleDict(
            {k: nn.Linear(d, d, bias=False) for k in ("q_proj", "k_proj", "v_proj", "o_proj")}
        )
        self.mlp = nn.ModuleDict({
            "gate_proj": nn.Linear(d, c.intermediate_size, bias=False),
            "up_proj": nn.Linear(d, c.intermediate_size, bias=False),
            "down_proj": nn.Linear(c.intermediate_size, d, bias=False),
        })  # fmt: skip

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, d = x.shape
        h = self.input_layernorm(x)
        q, k, v = (
            self.self_attn[name](h).view(b, t, self.heads, -1).transpose(1, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.self_attn["o_proj"](mixed.transpose(1, 2).reshape(b, t, d))
        h = self.post_attention_layernorm(x)
        gated = F.silu(self.mlp["gate_proj"](h)) * self.mlp["up_proj"](h)
        out: Tensor = x + self.mlp["down_proj"](gated)
        return out


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Llama(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.config = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Block(c) for _ in range(c.num_hidden_layers))
        self.norm = nn.RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                scale = 0.1 if "embed" in name else 0.7 * p.shape[1] ** -0.5
                nn.init.normal_(p, std=scale)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(p)
        self._start_copying(heads=2)
        half = c.hidden_size // c.num_attention_heads // 2
        rates = c.rope_theta ** (-torch.arange(half).float() / half)
        angles = torch.outer(torch.arange(c.max_position_embeddings).float(), rates)
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    @torch.no_grad()
    def _start_copying(self, heads: int) -> None:
        """Start some heads off as the two halves of copying, which take longest to form.

        The first `heads` of the first layer look at the token before: the first number of every
        embedding is the same, and from it alone come their queries and keys, the queries turned
        back by one place. Those of the second layer look for a place whose token before is the
        present one, in the slow half of the rotation, and put that place's token out.
        """
        c = self.config
        d, width = c.hidden_size, c.hidden_size // c.num_attention_heads
        half = width // 2
        rates = c.rope_theta ** (-torch.arange(half).float() / half)
        self.embed_tokens.weight[:, 0] = 0.5
        first, second = self.layers[0].self_attn, self.layers[1].self_attn
        read = torch.linalg.qr(torch.randn(d, heads * width))[0].T  # of the token before
        read[:, 0] = 0
        write = torch.linalg.qr(torch.randn(d, heads * width))[0]
        first["v_proj"].weight[: heads * width] = read
        first["o_proj"].weight[:, : heads * width] = 0.2 * write
        slow = torch.arange(half // 2, half)
        slow = torch.cat((slow, slow + half))
        for head in range(heads):
            rows = slice(head * width, (head + 1) * width)
            for name, angle in (("q_proj", -rates), ("k_proj", torch.zeros_like(rates))):
                first[name].weight[rows] = 0
                first[name].weight[rows, 0] = 1.6 * torch.cat((angle.cos(), angle.sin()))
            match = torch.zeros(width, heads * width)
            match[slow] = torch.linalg.qr(torch.randn(heads * width, len(slow)))[0].T
            second["q_proj"].weight[rows] = 3 * match @ read
            second["k_proj"].weight[rows] = 3 * match @ write.T
            said = torch.linalg.qr(torch.randn(d, width))[0]
            said[0] = 0
            second["v_proj"].weight[rows] = said.T
            second["o_proj"].weight[:, rows] = 0.1 * said

    def forward(self, tokens: Tensor) -> Tensor:
        """Hidden states; `logits` turns those that matter into scores."""
        x = self.embed_tokens(tokens)
        t = tokens.shape[1]
        for layer in self.layers:
            x = layer(x, self.cos[:t], self.sin[:t])
        out: Tensor = self.norm(x)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ self.embed_tokens.weight.T


def save(model: Llama, folder: Path, eos: int, pad: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    weights = {f"model.{k}": v.detach().half().contiguous() for k, v in model.state_dict().items()}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **asdict(model.config),
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "eos_token_id": eos,
        "pad_token_id": pad,
        "torch_dtype": "float16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    generation = {"eos_token_id": eos, "pad_token_id": pad, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")


def load(folder: Path) -> Llama:
    config = json.loads((folder / "config.json").read_text())
    model = Llama(Config(**{k: config[k] for k in Config.__dataclass_fields__}))
    weights = load_file(str(folder / "model.safetensors"))
    model.load_state_dict({k.removeprefix("model."): v.float() for k, v in weights.items()})
    return model
