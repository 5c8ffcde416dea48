"""Plans and servers that the tests of this folder share."""

from __future__ import annotations

import shutil

import pytest
from server import Server


@pytest.fixture(scope="session")
def trained(small_plan_of):
    """llama-trained with two slots."""
    return small_plan_of("llama-trained")


@pytest.fixture(scope="session")
def wide(small_plan_of):
    """The same with eight slots."""
    return small_plan_of("llama-trained", slots=8, decode="[8]")


TALK_TEMPLATE = """
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}
{{- m.content or '' }}
{%- for c in m.tool_calls or [] %}{{ '[' + c.function.name + ' ' + c.function.arguments + ']' }}{% endfor %}
{{- '<|im_end|>\\n' }}{% endfor %}
{%- if reasoning_effort is defined %}{{ 'effort ' + reasoning_effort }}{% endif %}
{%- if enable_thinking is defined %}{{ 'thinking ' + enable_thinking | string }}{% endif %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


@pytest.fixture(scope="session")
def talking_folder(repo, tmp_path_factory):
    """llama-trained with a chat template that shows all that a conversation may have."""
    folder = tmp_path_factory.mktemp("talking") / "llama-trained"
    shutil.copytree(repo / "tests" / "fixtures" / "llama-trained", folder)
    (folder / "chat_template.jinja").write_text(TALK_TEMPLATE)
    return folder


@pytest.fixture(scope="session")
def talking(small_plan_of, talking_folder):
    return small_plan_of(talking_folder)


@pytest.fixture(scope="module")
def talker(atlas, talking):
    """A server of that plan, ended with the module: it must drain with exit code 0."""
    server = Server(atlas, talking, "--name", "tiny")
    yield server
    assert server.stop() == 0, "".join(server.lines)


@pytest.fixture(scope="module")
def served(atlas, trained):
    """A server of two slots, ended with the module: it must drain with exit code 0."""
    server = Server(atlas, trained, "--name", "tiny", "--name", "org/alias")
    yield server
    assert server.stop() == 0, "".join(server.lines)


@pytest.fixture
def start(atlas):
    """start(plan, *options): a server that is gone after the test, whatever became of it."""
    servers = []

    def started(plan, *options, **kwargs):
        servers.append(Server(atlas, plan, *options, **kwargs))
        return servers[-1]

    yield started
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait()
