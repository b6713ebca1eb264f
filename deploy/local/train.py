"""Trains the two demo tiers. Needs torch, tokenizers, safetensors, jinja2.

python deploy/local/train.py standard --steps 4000
python deploy/local/train.py fast --steps 900      # starts from models/standard
"""

import argparse
import ctypes
import tempfile
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
from torch import Tensor, distributed, multiprocessing

MODELS = Path(__file__).parent / "models"
LONGEST = 2600
# (from this share of the steps on, what is seen)
STAGES = {
    "standard": [
        (0.0, Mix(drill=1)),
        (0.06, Mix(drill=0.2, copying=0.2, tasks=0.05, long=0, corrected=0, earlier=0.3)),
        (0.15, Mix(drill=0.02, copying=0.05, tasks=0.25, long=0, earlier=0.5)),
        (0.75, Mix(copying=0.02, tasks=0.45, long=0.06, earlier=0.4)),
    ],
    "fast": [
        (0.0, Mix(copying=0.01, tasks=0.6, chat=0.05, long=0.01, earlier=0.3, corrected=0.15,
                  weak=True)),
    ],
}  # fmt: skip


class Batches:
    """Batches of about `tokens` tokens, of dialogues of about equal length."""

    def __init__(self, encoder: encode.Encoder, tier: str, seed: str, tokens: int) -> None:
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


def share(model: llama.Llama) -> None:
    """Average the gradients of all workers."""
    if not distributed.is_initialized():
        return
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for g, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
        g.copy_(part.view_as(g))


def rate(step: int, done: float) -> float:
    """Warm up, stay, and go down to nothing over the last half."""
    return min(1.0, (step + 1) / 40, 2 * (1 - done))


def train(
    model: llama.Llama,
    batches: Batches,
    save: Callable[[], None],
    *,
    steps: int,
    scale: float,
    begin: float,
) -> None:
    optimizer = Optimizer(model, matrix_rate=0.012 * scale, other_rate=0.003 * scale)
    begun, tokens, shown = time.time(), 0, []
    workers = distributed.get_world_size() if distributed.is_initialized() else 1
    quiet = workers > 1 and distributed.get_rank() > 0
    for step in range(steps):
        done = begin + (1 - begin) * step / steps
        ids, mask = batches.next(done)
        hidden = model(ids[:, :-1])
        wanted = mask[:, 1:]
        logits = model.logits(hidden[wanted])
        loss = F.cross_entropy(logits, ids[:, 1:][wanted])
        loss.backward()
        share(model)
        optimizer.step(rate(step, done), momentum=min(0.95, 0.85 + step / 3000))
        optimizer.zero_grad()
        tokens += ids.numel() * workers
        shown.append(loss.item())
        if not quiet and (step % 50 == 49 or step in (4, 19)):
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
    parser.add_argument("--workers", type=int, default=2, help="processes, one thread each")
    parser.add_argument("--scale", type=float, default=None, help="of the learning rates")
    parser.add_argument("--start", type=Path, default=None, help="a model to go on from")
    parser.add_argument("--begin", type=float, default=0.0, help="at this share of the course")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    if args.workers == 1:
        return work(0, args, "")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, (args, f"file://{folder}/meet"), nprocs=args.workers)
    return None


def work(rank: int, args: argparse.Namespace, meet: str) -> None:
    keep_memory()
    torch.set_num_threads(1)
    if meet:
        distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=args.workers)
    torch.manual_seed(args.seed)
    out = args.out or MODELS / args.tier
    start = args.start or (MODELS / "standard" if args.tier == "fast" else None)
    if start:
        tokenizer = Tokenizer.from_file(str(start / "tokenizer.json"))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizer()
        model = llama.load(start)
    else:
        tokenizer = make_tokenizer(args.seed)
        model = llama.Llama(llama.Config(vocab_size=tokenizer.get_vocab_size()))
    if rank == 0:
        print(f"{sum(p.numel() for p in model.parameters())} parameters, "
              f"{tokenizer.get_vocab_size()} tokens", flush=True)  # fmt: skip
    encoder = encode.Encoder(tokenizer)
    share_of_batch = args.batch_tokens // args.workers
    batches = Batches(encoder, args.tier, f"{args.seed}:{rank}", share_of_batch)
    scale = args.scale or (0.5 if start else 1.0)

    def save() -> None:
        if rank > 0:
            return
        llama.save(model, out, encoder.end, tokenizer.token_to_id(tokenizers.END_OF_TEXT))
        tokenizers.save(tokenizer, out)

    train(model, batches, save, steps=args.steps, scale=scale, begin=args.begin)


if __name__ == "__main__":
    main()
