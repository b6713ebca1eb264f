"""Trains the two demo tiers. Needs torch, tokenizers, safetensors, jinja2.

python deploy/local/train.py standard --steps 4000
python deploy/local/train.py fast --steps 900      # starts from models/standard
"""

import argparse
import ctypes
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from demo_tiers import dialogues, drill, encode, llama
from demo_tiers import tokenizer as tokenizers
from demo_tiers.dialogues import Mix
from demo_tiers.optimizer import Optimizer
from tokenizers import Tokenizer
from torch import Tensor

MODELS = Path(__file__).parent / "models"
LONGEST = 2600
# (from this share of the steps on, what is seen)
STAGES = {
    "standard": [
        (0.0, Mix(drill=0.6, copying=0.3, tasks=0.05, chat=0.08, long=0, corrected=0, earlier=0)),
        (0.12, Mix(drill=0.1, copying=0.15, tasks=0.1, long=0, corrected=0.02, earlier=0)),
        (0.3, Mix(copying=0.06, tasks=0.3, long=0.01, earlier=0.15)),
        (0.75, Mix(copying=0.03, tasks=0.3, long=0.1, earlier=0.3)),
    ],
    "fast": [
        (0.0, Mix(copying=0.02, tasks=0.3, long=0.04, earlier=0.15, corrected=0.22, weak=True)),
    ],
}


class Batches:
    """Batches of about `tokens` tokens, of dialogues of about equal length."""

    def __init__(self, encoder: encode.Encoder, tier: str, seed: int, tokens: int) -> None:
        self.encoder = encoder
        self.rng = Random(f"{tier}:{seed}")
        self.words = tokenizers.common_words()
        self.tokens = tokens
        self.stages = STAGES[tier]
        self.mix = self.stages[0][1]
        vocabulary = encoder.tokenizer.get_vocab(with_added_tokens=True)
        self.plain = sorted(i for t, i in vocabulary.items() if len(t) == 1 and t.isascii())
        self.every = sorted(i for t, i in vocabulary.items() if not t.startswith("<"))
        self.waiting: list[list[tuple[list[int], list[bool]]]] = []

    def next(self, done: float) -> tuple[Tensor, Tensor]:
        mix = [mix for start, mix in self.stages if done >= start][-1]
        if mix is not self.mix or not self.waiting:
            self.mix = mix
            self._fill()
        batch = self.waiting.pop()
        width = max(len(ids) for ids, _ in batch)
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        mask = torch.zeros(len(batch), width, dtype=torch.bool)
        for row, (tokens, learnt) in enumerate(batch):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = torch.tensor(learnt)
        return ids, mask

    def _fill(self) -> None:
        encoded = sorted(self._some(256), key=lambda pair: len(pair[0]))
        batch: list[tuple[list[int], list[bool]]] = []
        self.waiting = []
        for pair in encoded:
            if batch and len(pair[0]) * (len(batch) + 1) > self.tokens:
                self.waiting.append(batch)
                batch = []
            batch.append(pair)
        self.waiting.append(batch)
        self.rng.shuffle(self.waiting)

    def _some(self, count: int) -> Iterator[tuple[list[int], list[bool]]]:
        while count:
            if self.rng.random() < self.mix.drill:
                ids, mask = drill.row(self.rng, self.plain, self.every)
            else:
                writer = dialogues.Writer(Random(self.rng.random()), self.mix, self.words)
                ids, mask = self.encoder(writer.dialogue())
            if len(ids) <= LONGEST and any(mask):
                yield ids, mask
                count -= 1


def make_tokenizer(seed: int) -> Tokenizer:
    words = tokenizers.common_words()
    mix = Mix(copying=0.0, corrected=0.25)
    made = (
        dialogues.Writer(Random(f"vocabulary:{seed}:{i}"), mix, words).dialogue()
        for i in range(6000)
    )
    return tokenizers.build(encode.text(dialogue) for dialogue in made)


def rate(step: int, steps: int) -> float:
    """Warm up, stay, and go down to nothing over the last half."""
    return min(1.0, (step + 1) / 100, 2 * (steps - step) / steps)


def train(
    model: llama.Llama, batches: Batches, steps: int, scale: float, save: Callable[[], None]
) -> None:
    optimizer = Optimizer(model, matrix_rate=0.02 * scale, other_rate=0.004 * scale)
    begun, tokens, shown = time.time(), 0, []
    for step in range(steps):
        ids, mask = batches.next(step / steps)
        hidden = model(ids[:, :-1])
        wanted = mask[:, 1:]
        logits = model.logits(hidden[wanted])
        loss = F.cross_entropy(logits, ids[:, 1:][wanted])
        loss.backward()
        optimizer.step(rate(step, steps), momentum=min(0.95, 0.85 + step / 3000))
        optimizer.zero_grad()
        tokens += ids.numel()
        shown.append(loss.item())
        if step % 50 == 49 or step in (4, 19):
            spent = time.time() - begun
            print(f"step {step + 1}/{steps} loss {sum(shown) / len(shown):.4f} "
                  f"{tokens / spent:.0f} tokens/s {spent:.0f} s", flush=True)  # fmt: skip
            shown = []
        if step % 500 == 499 or step == steps - 1:
            save()


def keep_memory() -> None:
    """Have glibc keep freed memory: page faults cost half the time of a step otherwise."""
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    for option, value in ((-4, 0), (-1, 2**31 - 1), (-2, 2**28)):  # mmap max, trim, top pad
        mallopt(option, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tier", choices=["standard", "fast"])
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch-tokens", type=int, default=6144)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scale", type=float, default=None, help="of the learning rates")
    parser.add_argument("--start", type=Path, default=None, help="a model to go on from")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    keep_memory()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    out = args.out or MODELS / args.tier
    start = args.start or (MODELS / "standard" if args.tier == "fast" else None)
    if start:
        tokenizer = Tokenizer.from_file(str(start / "tokenizer.json"))
        model = llama.load(start)
    else:
        tokenizer = make_tokenizer(args.seed)
        model = llama.Llama(llama.Config(vocab_size=tokenizer.get_vocab_size()))
    print(f"{sum(p.numel() for p in model.parameters())} parameters, "
          f"{tokenizer.get_vocab_size()} tokens", flush=True)  # fmt: skip
    encoder = encode.Encoder(tokenizer)
    batches = Batches(encoder, args.tier, args.seed, args.batch_tokens)
    scale = args.scale or (0.25 if start else 1.0)

    def save() -> None:
        llama.save(model, out, encoder.end, tokenizer.token_to_id(tokenizers.END_OF_TEXT))
        tokenizers.save(tokenizer, out)

    train(model, batches, args.steps, scale, save)


if __name__ == "__main__":
    main()
