"""The official Python client when a call needs an approver: its user agrees to wait, an approver decides, the result comes.
Usage: approval.py AEGIS (http URL | stdio COMMAND…) MODE"""

import asyncio
import os
import re
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult


async def decide(*words):
    operator = {name: value for name, value in os.environ.items() if name != "AEGIS_TOKEN"}
    process = await asyncio.create_subprocess_exec(
        sys.argv[1], "approvals", *words, env=operator, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0, words


async def check(connect, mode):
    asked = []
    decisions = set()

    async def user(_context, params):
        # The user agrees to wait; somebody else decides meanwhile.
        asked.append(params.message)
        request = re.search(r"approval:[0-9a-f-]+", params.message).group()
        words = ["approve", request] if len(asked) == 1 else ["reject", request, "--reason", "use drafts"]
        decisions.add(asyncio.create_task(decide(*words)))
        return ElicitResult(action="accept")

    async with Client(connect(), mode=mode, elicitation_callback=user) as client:
        name = f"approved-{mode}-{os.getpid()}.txt"
        wrote = await client.call_tool("fs.write", {"path": name, "content": "with leave"})
        assert not wrote.is_error and wrote.structured_content["bytes_written"] == 10, wrote
        read = await client.call_tool("fs.read", {"path": name})
        assert read.structured_content["content"] == "with leave", read
        refused = await client.call_tool("fs.write", {"path": name, "content": "more"})
        assert refused.is_error and "use drafts" in refused.content[0].text, refused
        assert len(asked) == 2, asked
    await asyncio.gather(*decisions)

    async with Client(connect(), mode=mode) as client:
        told = await client.call_tool("fs.write", {"path": f"silent-{mode}.txt", "content": ""})
        assert told.is_error and "pendingApproval" in told.content[0].text, told


async def main():
    kind, mode = sys.argv[2], sys.argv[-1]
    if kind == "stdio":
        server = StdioServerParameters(command=sys.argv[3], args=sys.argv[4:-1], env=dict(os.environ))
        await check(lambda: server, mode)
        return
    headers = {"Authorization": f"Bearer {os.environ['AEGIS_TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=90) as http:
        await check(lambda: streamable_http_client(sys.argv[3], http_client=http), mode)


asyncio.run(main())
