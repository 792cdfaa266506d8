"""A llama with random weights as a GGUF file (github.com/ggml-org/ggml, docs/gguf.md), for llama.cpp's server.

Its vocabulary is made here: bytes in GPT-2's notation, and merges of lower-case letters and the space. Output rows of
bytes beyond ASCII and of control tokens are zero: they are hardly ever chosen, so that answers are valid text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LAYERS, WIDTH, HEADS, KEY_HEADS, HIDDEN, CONTEXT = 4, 256, 8, 2, 672, 4096
ALIGNMENT = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # types of metadata
NORMAL, CONTROL = 1, 3  # types of tokens
SPECIAL = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def write(path: Path) -> Path:
    """Write the model, 14 MB; return its path."""
    tokens, merges = _vocabulary()
    fields, tensors = _fields(tokens, merges), dict(_tensors(tokens))
    infos, offset = b"", 0
    for name, tensor in tensors.items():
        infos += _text(name) + struct.pack("<I", tensor.ndim) + struct.pack(f"<{tensor.ndim}Q", *tensor.shape[::-1])
        infos += struct.pack("<IQ", 0, offset)  # 0: float32
        offset += _padded(tensor.nbytes)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(fields))
    head += b"".join(_text(name) + content for name, content in fields.items()) + infos
    with path.open("wb") as file:
        file.write(head.ljust(_padded(len(head)), b"\0"))
        for tensor in tensors.values():
            file.write(tensor.tobytes().ljust(_padded(tensor.nbytes), b"\0"))
    return path


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _value(kind: int, content: Any) -> bytes:
    formats = {UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}
    return _text(content) if kind == STRING else struct.pack(formats[kind], content)


def _array(kind: int, entries: list[Any]) -> bytes:
    return struct.pack("<IIQ", ARRAY, kind, len(entries)) + b"".join(_value(kind, entry) for entry in entries)


def _fields(tokens: list[str], merges: list[str]) -> dict[str, bytes]:
    """The metadata, each with its type."""
    plain: dict[str, tuple[int, Any]] = {
        "general.architecture": (STRING, "llama"), "general.name": (STRING, "random"),
        "llama.context_length": (UINT32, CONTEXT), "llama.embedding_length": (UINT32, WIDTH),
        "llama.block_count": (UINT32, LAYERS), "llama.feed_forward_length": (UINT32, HIDDEN),
        "llama.attention.head_count": (UINT32, HEADS), "llama.attention.head_count_kv": (UINT32, KEY_HEADS),
        "llama.attention.layer_norm_rms_epsilon": (FLOAT32, 1e-5),
        "llama.rope.dimension_count": (UINT32, WIDTH // HEADS), "llama.vocab_size": (UINT32, len(tokens)),
        "tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.pre": (STRING, "gpt-2"),
        "tokenizer.ggml.bos_token_id": (UINT32, len(tokens) - 4),
        "tokenizer.ggml.eos_token_id": (UINT32, len(tokens) - 1), "tokenizer.ggml.add_bos_token": (BOOL, False),
        "tokenizer.chat_template": (STRING, TEMPLATE)}
    types = [CONTROL if token in SPECIAL else NORMAL for token in tokens]
    return {name: struct.pack("<I", kind) + _value(kind, content) for name, (kind, content) in plain.items()} | {
        "tokenizer.ggml.tokens": _array(STRING, tokens), "tokenizer.ggml.token_type": _array(INT32, types),
        "tokenizer.ggml.merges": _array(STRING, merges)}


def _vocabulary() -> tuple[list[str], list[str]]:
    """Tokens, and the merges that make those of several bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letter_of = {byte: chr(byte) for byte in printable} | {byte: chr(256 + at) for at, byte in enumerate(others)}
    letters, space = [chr(byte) for byte in range(97, 123)], letter_of[32]
    pairs = [*product([space, *letters], letters), *((space + first, second) for first, second in
                                                     product(letters, letters))]
    bytes_first = [letter_of[byte] for byte in range(256)]
    return [*bytes_first, *map("".join, pairs), *SPECIAL], [" ".join(pair) for pair in pairs]


def _tensors(tokens: list[str]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    generator = np.random.default_rng(0)

    def normal(*shape: int, spread: float = 0.02) -> NDArray[np.float32]:
        return generator.normal(0, spread, shape).astype(np.float32)

    key_width, one = WIDTH // HEADS * KEY_HEADS, np.ones(WIDTH, np.float32)
    is_text = [token not in SPECIAL and all(33 <= ord(sign) < 127 or sign == chr(288) for sign in token)
               for token in tokens]
    yield "token_embd.weight", normal(len(tokens), WIDTH)
    yield "output_norm.weight", one
    yield "output.weight", normal(len(tokens), WIDTH, spread=1.0) * np.array(is_text, np.float32)[:, None]
    for layer in range(LAYERS):
        shapes = {"attn_q": (WIDTH, WIDTH), "attn_k": (key_width, WIDTH), "attn_v": (key_width, WIDTH),
                  "attn_output": (WIDTH, WIDTH), "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH),
                  "ffn_down": (WIDTH, HIDDEN)}
        yield from ((f"blk.{layer}.{name}.weight", normal(*shape)) for name, shape in shapes.items())
        yield from ((f"blk.{layer}.{name}.weight", one) for name in ("attn_norm", "ffn_norm"))
