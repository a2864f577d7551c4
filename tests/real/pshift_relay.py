#!/usr/bin/env python3
"""A relay between a node and the controllers: pshift_relay.py MODE_FILE LISTEN=HOST:PORT...

The mode is read from the file every 20 ms: pass; delay SECONDS (for each piece, one after the other); hold (half open: the
connections stay, nothing passes); cut (connections are reset, also new ones)."""
import asyncio
import sys

mode = ["pass"]
open_ones = set()


async def watch(path):
    while True:
        with open(path) as f:
            mode[:] = f.read().split() or ["pass"]
        if mode[0] == "cut":
            for writer in list(open_ones):
                writer.transport.abort()
        await asyncio.sleep(0.02)


async def pump(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            if mode[0] == "delay":
                await asyncio.sleep(float(mode[1]))
            while mode[0] == "hold":
                await asyncio.sleep(0.02)
            writer.write(data)
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    writer.transport.abort()


def relay(host, port):
    async def accepted(reader, writer):
        try:
            there, back = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()
            return
        open_ones.update((writer, back))
        await asyncio.gather(pump(reader, back), pump(there, writer))
        open_ones.difference_update((writer, back))
    return accepted


async def main():
    for pair in sys.argv[2:]:
        port, there = pair.split("=")
        host, there = there.split(":")
        await asyncio.start_server(relay(host, int(there)), "0.0.0.0", int(port))
    await watch(sys.argv[1])


asyncio.run(main())
