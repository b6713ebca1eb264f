"""Rows of random tokens in which pieces come back: copying, learnt before anything else.

Dense practice makes the copying circuit form in minutes; questions alone, where one token in
twenty is a copied one, take far longer.
"""

from random import Random

Row = tuple[list[int], list[bool]]


def row(rng: Random, plain: list[int], every: list[int], length: int = 192) -> Row:
    """A few pieces, again and again in any order; learnt is what of a piece can be known."""
    kinds = [plain if rng.random() < 0.9 else every for _ in range(rng.randint(2, 6))]
    pieces = [rng.choices(kind, k=rng.randint(3, 14)) for kind in kinds]
    known = [False] * len(pieces)
    ids: list[int] = []
    learnt: list[bool] = []
    while len(ids) < length:
        place = rng.randrange(len(pieces))
        piece = pieces[place]
        ids += piece
        learnt += [False] + [known[place]] * (len(piece) - 1)
        known[place] = True
        gap = rng.choices(plain, k=rng.choice([0, 0, 1, 3]))
        ids += gap
        learnt += [False] * len(gap)
    return ids[:length], learnt[:length]
