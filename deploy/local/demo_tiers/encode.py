"""Dialogues → token ids and which of them are learnt."""

from tokenizers import Tokenizer

from demo_tiers import chat_template
from demo_tiers.dialogues import Dialogue
from demo_tiers.tokenizer import END, START


def text(dialogue: Dialogue) -> str:
    said = chat_template.render(dialogue.messages, dialogue.offered or None, False)
    return said.removesuffix(f"{END}\n") if dialogue.endless else said


class Encoder:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.start = tokenizer.token_to_id(START)
        self.end = tokenizer.token_to_id(END)
        self.head = tokenizer.encode(f"{START}assistant\n").ids

    def __call__(self, dialogue: Dialogue) -> tuple[list[int], list[bool]]:
        ids: list[int] = self.tokenizer.encode(text(dialogue)).ids
        mask = [False] * len(ids)
        width, turn, place = len(self.head), 0, 0
        while place < len(ids):
            if ids[place] == self.start and ids[place : place + width] == self.head:
                place += width
                learn = turn in dialogue.learnt
                while place < len(ids):
                    mask[place] = learn
                    place += 1
                    if ids[place - 1] == self.end:
                        break
                turn += 1
            else:
                place += 1
        return ids, mask
