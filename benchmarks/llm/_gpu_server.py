"""A server with OpenAI's streaming interface that decodes a transformer of random weights by torch.

    python benchmarks/llm/_gpu_server.py LOG [LAYERS WIDTH]

On a GPU where torch has one, else on the CPU. It prints its port and its device once it is ready, and writes to LOG for
each step the time at which its tokens were on the host, ns of CLOCK_MONOTONIC, and their number: two int64.
"""

from __future__ import annotations

import asyncio
import json
import math
import queue
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch.nn import functional

VOCABULARY, SLOTS, LONGEST, HEAD = 8192, 16, 512, 64
Tensor = Any  # of torch, which the type checker does not have


class Decoder:
    """The weights, and a cache of keys and values with room for SLOTS sequences of LONGEST tokens."""

    def __init__(self, layers: int, width: int, device: str) -> None:
        torch.manual_seed(0)
        self.device, self.heads = device, width // HEAD
        self.kind = {"device": device, "dtype": torch.bfloat16 if device == "cuda" else torch.float32}
        shapes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
        self.embedding = self._random(VOCABULARY, width)
        self.layers = [[self._random(*shape) for shape in shapes] for _ in range(layers)]
        self.cache = torch.zeros(layers, 2, SLOTS, self.heads, LONGEST, HEAD, **self.kind)

    def _random(self, rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, **self.kind) / math.sqrt(rows)

    @torch.inference_mode()
    def step(self, ids: list[list[int]], slots: list[int], lengths: list[int]) -> list[int]:
        """Return the next token of each sequence after these ids, which come behind as many as `lengths` says."""
        batch, count = len(ids), len(ids[0])
        x, slot = self.embedding[torch.tensor(ids, device=self.device)], torch.tensor(slots, device=self.device)
        place = torch.tensor(lengths, device=self.device)[:, None] + torch.arange(count, device=self.device)
        mask = torch.arange(LONGEST, device=self.device) <= place[:, None, :, None]
        for (into, out, up, down), (keys, values) in zip(self.layers, self.cache, strict=True):
            query, key, value = (_norm(x) @ into).view(batch, count, 3, self.heads, HEAD).unbind(2)
            keys[slot[:, None], :, place], values[slot[:, None], :, place] = key, value
            seen = functional.scaled_dot_product_attention(query.transpose(1, 2), keys[slot], values[slot], mask)
            x = x + seen.transpose(1, 2).reshape(x.shape) @ out
            x = x + functional.silu(_norm(x) @ up) @ down
        return (_norm(x[:, -1]) @ self.embedding.T).argmax(-1).tolist()  # type: ignore[no-any-return]


def _norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


@dataclass
class Sequence:
    """A request under way: tokens of its prompt, those it may still get, and where they go."""

    prompt: list[int]
    left: int
    tokens: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    length: int = 0
    last: int = 0


def decode(decoder: Decoder, waiting: queue.SimpleQueue[Sequence], loop: asyncio.AbstractEventLoop, log: BinaryIO
           ) -> None:
    """Decode what waits, as many at once as there are slots, for ever."""
    active: dict[int, Sequence] = {}
    while True:
        for slot in sorted(set(range(SLOTS)) - set(active)):
            if waiting.empty() and active:
                break
            new = active[slot] = waiting.get()
            _emit({slot: new}, decoder.step([new.prompt], [slot], [0]), len(new.prompt), loop, log)
        active = {slot: sequence for slot, sequence in active.items() if sequence.left}
        if active:
            made = decoder.step([[sequence.last] for sequence in active.values()], list(active),
                                [sequence.length for sequence in active.values()])
            _emit(active, made, 1, loop, log)
            active = {slot: sequence for slot, sequence in active.items() if sequence.left}


def _emit(active: dict[int, Sequence], made: list[int], more: int, loop: asyncio.AbstractEventLoop, log: BinaryIO
          ) -> None:
    log.write(struct.pack("<qq", time.monotonic_ns(), len(made)))
    for sequence, token in zip(active.values(), made, strict=True):
        sequence.length, sequence.last, sequence.left = sequence.length + more, token, sequence.left - 1
        loop.call_soon_threadsafe(sequence.tokens.put_nowait, token)


async def answer(waiting: queue.SimpleQueue[Sequence], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
                 ) -> None:
    """Answer the requests of a connection until it ends."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if head.startswith(b"get "):
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            asked = json.loads(await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0])))
            prompt = [hash(word) % VOCABULARY for word in asked["messages"][-1]["content"].split()][:LONGEST // 2]
            most = max(1, min(int(asked.get("max_tokens") or 16), LONGEST // 2))
            sequence = Sequence(prompt or [0], most)
            waiting.put(sequence)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for number in range(1, most + 1):
                token = await sequence.tokens.get()
                writer.write(_event(json.dumps({
                    "model": asked["model"], "choices": [{"index": 0, "delta": {"content": f" {token}"}}],
                    "usage": {"prompt_tokens": len(sequence.prompt), "completion_tokens": number}})))
            writer.write(_event("[DONE]") + b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _event(text: str) -> bytes:
    content = f"data: {text}\n\n".encode()
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


async def main(log: str, layers: int, width: int) -> None:
    """Serve on a free port of this machine until it is stopped."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    decoder, waiting = Decoder(layers, width, device), queue.SimpleQueue[Sequence]()
    for batch in range(1, SLOTS + 1):
        decoder.step([[1]] * batch, list(range(batch)), [0] * batch)  # what is compiled or chosen once
    with Path(log).open("wb", 0) as made:
        threading.Thread(target=decode, args=(decoder, waiting, asyncio.get_running_loop(), made), daemon=True).start()
        server = await asyncio.start_server(lambda *ends: answer(waiting, *ends), "127.0.0.1", 0)
        name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
        print(server.sockets[0].getsockname()[1], name, flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:4] or (16, 2048))))
