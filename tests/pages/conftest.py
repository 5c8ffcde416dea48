"""One browser for all tests of the pages; where there is none they are not run, and say so."""

from __future__ import annotations

import pytest

import browser as driver


@pytest.fixture(scope="session")
def browser():
    if not driver.program():
        pytest.skip("not run: no chromium-headless-shell or chromium on this machine (make deps installs one)")
    with driver.Browser() as b:
        yield b
