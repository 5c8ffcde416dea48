"""Soak: many clients, some of which leave or send nonsense; memory and descriptors stay, no slot or page is lost, and
every text is that of its prompt alone. `make test-long` runs minutes of it; ATLAS_SOAK_MINUTES=60 an hour."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import random
import time

import pytest
from server import text_of

CLIENTS, WORDS = 32, "the king of Babylon came unto Jerusalem and besieged it in the third year".split()
NONSENSE = [
    b"GET /\x00 HTTP/1.1\r\n\r\n",
    b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n{"promp',
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    b"\x16\x03\x01\x02\x00",
    b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n{"prompt": 7}',
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n[]",
    b"POST /tokenize HTTP/1.1\r\nHost: evil\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
]


def prompts():
    """Of a fixed set, so that each has a text to compare with."""
    draw = random.Random(3)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(2, 40))) for _ in range(24)]


def state(pid):
    """(resident KiB, descriptors, threads) of a process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    field = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if len(line.split()) > 1}
    return int(field["VmRSS"]), len(os.listdir(f"/proc/{pid}/fd")), int(field["Threads"])


async def client(port, number, until, texts, seen):
    """Requests one after the other until the time is over; counts what came in `seen`."""
    draw = random.Random(number)
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        kind = draw.random()
        try:
            if kind < 0.05:
                writer.write(draw.choice(NONSENSE))
                writer.write_eof() if draw.random() < 0.5 else None
                await asyncio.wait_for(reader.read(300), 10)
                seen["nonsense"] += 1
                continue
            prompt, stream = draw.randrange(len(texts)), draw.random() < 0.6
            body = json.dumps(
                {"prompt": prompts_list[prompt], "max_tokens": 24, "temperature": 0.8, "seed": prompt, "stream": stream}
            ).encode()
            writer.write(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
                % (len(body), body)
            )
            if kind < 0.15:
                await asyncio.sleep(draw.random() * 0.2)
                seen["left"] += 1
                continue
            got = await asyncio.wait_for(reader.read(), 120)
            head, _, rest = got.partition(b"\r\n\r\n")
            if b" 429 " in head.split(b"\r\n")[0]:
                seen["shed"] += 1
                await asyncio.sleep(0.05)
                continue
            assert head.startswith(b"HTTP/1.1 200"), got[:300]
            if stream:
                events = [json.loads(line[6:]) for line in rest.split(b"\n") if line.startswith(b"data: {")]
                assert b"data: [DONE]" in rest
                text = "".join(e["choices"][0]["text"] for e in events)
            else:
                text = json.loads(rest)["choices"][0]["text"]
            assert text == texts[prompt], (prompt, text)
            seen["whole"] += 1
        except (ConnectionResetError, BrokenPipeError):
            assert kind < 0.15
        finally:
            writer.close()


prompts_list = prompts()


@pytest.mark.parametrize(
    "minutes", [0.12, pytest.param(float(os.environ.get("ATLAS_SOAK_MINUTES", "3")), marks=pytest.mark.long)]
)
def test_soak(atlas, build_dir, wide, start, minutes):
    texts = [text_of(atlas, wide, p, 24, "--temperature", 0.8, "--seed", i) for i, p in enumerate(prompts_list)]
    server = start(wide, "--log", "off", "--max-queue", 24, wait=False)
    server.wait_line("listening")
    server.port = int("".join(server.lines).split("127.0.0.1:")[1].split('"')[0].split("\n")[0])
    server.wait_line("ready")
    seen = dict.fromkeys(("whole", "left", "nonsense", "shed"), 0)

    async def load(seconds):
        until = time.monotonic() + seconds
        await asyncio.gather(*(client(server.port, i, until, texts, seen) for i in range(CLIENTS)))

    asyncio.run(load(max(2, minutes * 20)))
    before = state(server.process.pid)
    asyncio.run(load(minutes * 60))
    server.settles("requests_running", 0)
    server.settles("slots_used", 0)
    server.settles("kv_pages_used", 0)
    assert server.metric("requests_waiting") == 0
    after = state(server.process.pid)
    if "asan" not in build_dir.name:  # which keeps what is freed
        assert after[0] < before[0] + 4096 + before[0] // 50, (before, after)  # KiB
    assert after[1] <= before[1] + 2 and after[2] == before[2], (before, after)
    assert seen["whole"] > 50 and seen["left"] > 2 and seen["nonsense"] > 1, seen
    assert server.get("/health")[0] == 200 and server.stop() == 0
