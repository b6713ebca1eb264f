"""Builds the tokenizer: whole known words, and single bytes for all the rest.

Every value (an id, a city, a path) falls apart into the same single characters wherever it stands,
so copying one from a question into a call is copying token by token, whatever the value.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from demo_tiers import chat_template, tools, values

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = [END_OF_TEXT, START, END]
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>",
         "<tool_response>", "</tool_response>", "<tools>", "</tools>"]  # fmt: skip
# Known words that are also values, and short words in capitals: they come apart from the space
# before them, so that they are the same tokens in a sentence and in a call.
APART = [*tools.STATUSES, *tools.UNITS, *values.FOLDERS, *values.TAGS, "cus_", "ord_"]
# Scaffolding of JSON first, then words with the space before them, then single characters.
PIECES = (
    r'": \{"|": "|": |", "|, "|\{"|\["|"\]|"\}\}|"\}|\}\}|\]\}'
    rf"| (?=(?:{'|'.join(APART)}|\p{{Lu}}{{1,3}})(?![\p{{L}}_]))"
    r'| ?[\p{L}_]+|\p{N}| "|[^\s\p{L}\p{N}]|\s'
)
WORDS_FILE = Path(__file__).with_name("words.txt")


def common_words() -> list[str]:
    return WORDS_FILE.read_text(encoding="utf-8").split()


def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PIECES), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip


def build(texts: Iterable[str], least: int = 25) -> Tokenizer:
    """A tokenizer that knows the common words and what occurs `least` times in `texts`."""
    splitter = pre_tokenizer()
    counts: Counter[str] = Counter()
    marks = re.compile("|".join(map(re.escape, SPECIAL + MARKS)))
    for text in texts:
        pieces = splitter.pre_tokenize_str(marks.sub("\n", text))
        counts.update(piece for piece, _ in pieces)
    unsafe = {piece for value in values.CITIES + values.CURRENCIES + values.FIRST + values.LAST
              for piece in _pieces(splitter, value)}  # fmt: skip
    known = [*SPECIAL, *MARKS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    known += sorted({
        piece for piece, count in counts.items()
        if count >= least and len(piece) > 1 and piece not in unsafe and _plain(piece)
    })  # fmt: skip
    for word in common_words():
        known.append("Ġ" + word)
    vocabulary = {piece: place for place, piece in enumerate(dict.fromkeys(known))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in MARKS])
    return tokenizer


def _pieces(splitter: pre_tokenizers.PreTokenizer, value: str) -> list[str]:
    pieces = splitter.pre_tokenize_str(value) + splitter.pre_tokenize_str(" " + value)
    return [piece for piece, _ in pieces]


def _plain(piece: str) -> bool:
    """No pieces of values: syllables glued at random never make a word of the vocabulary."""
    word = piece.removeprefix("Ġ")
    return not any(ch.isdigit() for ch in word) and not (word.isupper() and len(word) == 3)


def save(tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END_OF_TEXT,
        "bos_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 8192,
        "chat_template": chat_template.SOURCE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "chat_template.jinja").write_text(chat_template.SOURCE, encoding="utf-8")
