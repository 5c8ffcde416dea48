"""Plans and servers that the tests of this folder share."""

from __future__ import annotations

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
