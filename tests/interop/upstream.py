"""The official Python client, and through the node other people's MCP servers: tools, resources, prompts, completion,
progress, questions, cancelling. Usage: upstream.py URL MODE DIRECTORY, where DIRECTORY is what the servers may see"""

import asyncio
import os
import pathlib
import subprocess
import sys
import time

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult, PromptReference


async def agree(context, params):
    """Fills in the first field of whatever is asked."""
    properties = params.requested_schema["properties"]
    name, field = next(iter(properties.items()))
    value = {"boolean": True, "integer": 7, "number": 7}.get(field.get("type"), "somebody")
    return ElicitResult(action="accept", content={name: field.get("default", value)})


async def check(target, mode, directory):
    async with Client(target, mode=mode, elicitation_callback=agree) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name in ("everything.echo", "filesystem.read_text_file", "memory.create_entities", "git.git_log"):
            assert name in tools, (name, sorted(tools))
        assert "everything.get-env" not in tools, "a tool that is switched off is listed"

        echoed = await client.call_tool("everything.echo", {"message": "through the node"})
        assert "through the node" in echoed.content[0].text, echoed
        image = await client.call_tool("everything.get-tiny-image", {})
        assert any(part.type == "image" for part in image.content), image
        weather = await client.call_tool("everything.get-structured-content", {"location": "New York"})
        assert "temperature" in weather.structured_content, weather
        wrong = await client.call_tool("everything.get-sum", {"a": "no number"})
        assert wrong.is_error, wrong

        place = str(directory / f"{mode}.txt")
        await client.call_tool("filesystem.write_file", {"path": place, "content": "written through the node"})
        read = await client.call_tool("filesystem.read_text_file", {"path": place})
        assert "written through the node" in read.content[0].text, read
        assert pathlib.Path(place).read_text() == "written through the node"
        outside = await client.call_tool("filesystem.read_text_file", {"path": "/etc/passwd"})
        assert outside.is_error, outside

        entity = {"name": f"node-{mode}", "entityType": "software", "observations": ["stands between"]}
        await client.call_tool("memory.create_entities", {"entities": [entity]})
        graph = await client.call_tool("memory.read_graph", {})
        assert f"node-{mode}" in graph.content[0].text, graph

        log = await client.call_tool("git.git_log", {"repo_path": str(directory / "repository"), "max_count": 1})
        assert "the first" in log.content[0].text, log

        resources = {resource.uri for resource in (await client.list_resources()).resources}
        document = "demo://resource/static/document/architecture.md"
        assert document in resources and "memory://knowledge-graph" in resources, resources
        templates = {one.uri_template for one in (await client.list_resource_templates()).resource_templates}
        assert "demo://resource/dynamic/text/{resourceId}" in templates, templates
        assert (await client.read_resource(document)).contents[0].text
        assert (await client.read_resource("demo://resource/dynamic/text/1")).contents[0].text
        assert f"node-{mode}" in (await client.read_resource("memory://knowledge-graph", cache_mode="refresh")).contents[0].text
        try:
            nothing = await client.read_resource("nowhere://at/all")
        except Exception as refused:
            assert type(refused).__name__ in ("MCPError", "McpError"), refused
        else:
            raise AssertionError(f"a resource that is not there was read: {nothing}")

        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert {"everything.simple-prompt", "everything.args-prompt"} <= prompts, prompts
        prompt = await client.get_prompt("everything.args-prompt", {"city": "Utrecht"})
        assert "Utrecht" in prompt.messages[0].content.text, prompt
        reference = PromptReference(name="everything.completable-prompt")
        completed = await client.complete(reference, {"name": "department", "value": "E"})
        assert "Engineering" in completed.completion.values, completed

        heard = []

        async def hear(progress, total, message):
            heard.append(progress)

        slow = {"duration": 1, "steps": 4}
        done = await client.call_tool("everything.trigger-long-running-operation", slow, progress_callback=hear)
        assert not done.is_error and len(heard) >= 3 and heard == sorted(heard), (done, heard)

        asked = await client.call_tool("everything.trigger-elicitation-request", {})
        assert not asked.is_error and "somebody" in str(asked.content), asked

        began = time.monotonic()
        try:
            never = {"duration": 60, "steps": 6}
            await asyncio.wait_for(client.call_tool("everything.trigger-long-running-operation", never), 0.5)
        except TimeoutError:
            pass
        else:
            raise AssertionError("a call of a minute ended in half a second")
        again = await client.call_tool("everything.echo", {"message": "still here"})
        assert "still here" in again.content[0].text and time.monotonic() - began < 20


async def main():
    url, mode, directory = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    headers = {"Authorization": f"Bearer {os.environ['AEGIS_TEST_TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        await check(streamable_http_client(url, http_client=http), mode, directory)


asyncio.run(main())
