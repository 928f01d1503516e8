"""The official Python client against a node: lists, calls, is refused. Usage: client.py (http URL | stdio COMMAND…) MODE"""

import asyncio
import os
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


async def check(target, mode, expected):
    async with Client(target, mode=mode) as client:
        assert client.protocol_version == expected, client.protocol_version
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "fs.read" in tools and "aegis.system.info" not in tools, sorted(tools)
        assert tools["fs.read"].annotations.read_only_hint is True
        assert tools["fs.read"].output_schema["type"] == "object"

        wrote = await client.call_tool("fs.write", {"path": "py.txt", "content": "from python"})
        assert not wrote.is_error and wrote.structured_content["bytes_written"] == 11, wrote
        read = await client.call_tool("fs.read", {"path": "py.txt"})
        assert read.structured_content["content"] == "from python", read
        found = await client.call_tool("fs.grep", {"pattern": "pyth.n", "path": "."})
        assert "py.txt:1:from python" in found.content[0].text, found
        missing = await client.call_tool("fs.read", {"path": "nowhere"})
        assert missing.is_error and "NOT_FOUND" in missing.content[0].text, missing
        wrong = await client.call_tool("fs.read", {"pth": "x"})
        assert wrong.is_error and "required field 'path'" in wrong.content[0].text, wrong
        for tool, arguments in [("fs.read", {"path": "../x"}), ("aegis.system.info", {}), ("no.such", {})]:
            try:
                answer = await client.call_tool(tool, arguments)
            except Exception as refused:
                assert type(refused).__name__ in ("MCPError", "McpError"), refused
            else:
                raise AssertionError(f"{tool} was not refused: {answer}")


async def main():
    kind, mode = sys.argv[1], sys.argv[-1]
    expected = "2025-11-25" if mode == "legacy" else "2026-07-28"
    if kind == "stdio":
        server = StdioServerParameters(command=sys.argv[2], args=sys.argv[3:-1], env=dict(os.environ))
        await check(server, mode, expected)
    else:
        headers = {"Authorization": f"Bearer {os.environ['AEGIS_TEST_TOKEN']}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            await check(streamable_http_client(sys.argv[2], http_client=http), mode, expected)


asyncio.run(main())
