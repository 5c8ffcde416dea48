"""Fixtures shared by every Python test: where the build is and how to run its commands.

`pytest --build-dir build-asan` tests another build; the default is `build` in the repository's root.
`@pytest.mark.long` is for a test that takes minutes: it runs with `--long` (`make test-long`) alone.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess

import pytest

REPO = pathlib.Path(__file__).resolve().parent.parent
LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--build-dir", default="build", help="folder with atlasc and atlas")
    parser.addoption("--long", action="store_true", help="run the tests marked `long` too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes minutes; runs with --long alone (make test-long)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [] if config.getoption("--long") else [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    config.stash[LEFT_OUT] = len(left_out)
    if hasattr(config, "workeroutput"):  # a worker of pytest-xdist collects; who started it prints
        config.workeroutput["left out"] = len(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left out", 0)


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    n = config.stash.get(LEFT_OUT, 0)
    if n:
        terminalreporter.write_line(f"left out: {n} long test{'s' * (n > 1)}; `make test-long` runs them too")


@pytest.fixture(scope="session")
def repo() -> pathlib.Path:
    """The repository's root; commands run here, so that paths in messages are relative to it."""
    return REPO


@pytest.fixture(scope="session")
def build_dir(pytestconfig: pytest.Config) -> pathlib.Path:
    """The build under test, absolute."""
    return (REPO / pytestconfig.getoption("--build-dir")).resolve()


@pytest.fixture(scope="session")
def kernel_cache(build_dir: pathlib.Path) -> pathlib.Path:
    """Folder for `atlasc --cache-dir`, kept between runs: a kernel that any test has compiled is not compiled
    again. Tests about kernels being compiled, or about the cache, use a folder of their own."""
    folder = build_dir / "kernel-cache"
    folder.mkdir(mode=0o755, exist_ok=True)  # one that others can write would not be used
    return folder


class Command:
    """A program of the build. Calling it runs it in the repository's root and returns the finished
    process, stdout and stderr as text; it never raises for an exit code, and gives up after `timeout` s."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    def __call__(self, *args: object, timeout: float = 120, **kwargs) -> subprocess.CompletedProcess:
        kwargs.setdefault("cwd", REPO)
        if "input" not in kwargs:
            kwargs.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            [os.fspath(self.path), *map(str, args)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **kwargs,
        )


def _command(build_dir: pathlib.Path, name: str) -> Command:
    path = build_dir / name
    assert path.exists(), f"{path} is missing: run make"
    return Command(path)


@pytest.fixture(scope="session")
def atlasc(build_dir: pathlib.Path) -> Command:
    """The compiler."""
    return _command(build_dir, "atlasc")


@pytest.fixture(scope="session")
def atlas(build_dir: pathlib.Path) -> Command:
    """The runtime's command."""
    return _command(build_dir, "atlas")


@pytest.fixture(scope="session")
def plan_of(atlasc: Command, kernel_cache: pathlib.Path, tmp_path_factory: pytest.TempPathFactory):
    """plan_of("llama") compiles tests/fixtures/llama once a session and returns the plan's path; so does
    plan_of(folder) for a checkpoint elsewhere. Further words go to atlasc. Compiled kernels are shared."""
    folder = tmp_path_factory.mktemp("plans")
    made = {}

    def compiled(checkpoint: str | os.PathLike, *options: object) -> pathlib.Path:
        key = (os.fspath(checkpoint), *map(str, options))
        if key not in made:
            source = pathlib.Path(checkpoint)
            source = source if source.is_absolute() else REPO / "tests" / "fixtures" / source
            plan = folder / f"{source.name}-{len(made)}.bin"
            run = atlasc(source, "-o", plan, "--cache-dir", kernel_cache, *options, timeout=600)
            assert run.returncode == 0, run.stdout + run.stderr
            made[key] = plan
        return made[key]

    return compiled


@pytest.fixture(scope="session")
def small_plan_of(plan_of, tmp_path_factory: pytest.TempPathFactory):
    """As plan_of, with one bucket a phase, two slots and pages of 16 tokens: for tests of the reference device,
    which reads the graph alone. Further words go to atlasc; keywords change keys of models/defaults.toml, and
    `state` is state.dtype, which it does not have."""
    folder = tmp_path_factory.mktemp("small")

    def compiled(checkpoint: str | os.PathLike, *options: object, state: str = "", **changes: object) -> pathlib.Path:
        source = REPO / "tests" / "fixtures" / checkpoint  # an absolute path stays as it is
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        config = config.get("text_config", config)
        family = config["model_type"].removesuffix("_text")
        values = {
            "prefill": "[64]",
            "decode": "[2]",
            "slots": 2,
            "page": 16,
            "ignore": "[]",
            "max_context": min(config["max_position_embeddings"], 4096),
        } | changes
        text = (REPO / "models" / "defaults.toml").read_text(encoding="utf-8")
        has_head = "[speculate]" in (REPO / "models" / f"{family}.toml").read_text(encoding="utf-8")
        if has_head:
            text = re.sub(r"^\[speculate\].*$", "[speculate]\nrows = 3", text, flags=re.M)
        if has_head and not (config.get("mtp_num_hidden_layers") and "none" in options):
            values = {
                "rows": 1
            } | values  # a user's file may not ask for a head that is not there; kernels of it take time
        for key, value in values.items():
            text, n = re.subn(rf"^{key} = (\[[^]]*\]|\S+)", f"{key} = {value}", text, flags=re.M)
            assert n == 1, key
        if state:
            text += f'\n[state]\ndtype = "{state}"\n'
        toml = folder / ("-".join([source.name + state, *(f"{k}={v}" for k, v in sorted(changes.items()))]) + ".toml")
        toml.write_text(text, encoding="utf-8")
        return plan_of(checkpoint, "--model", toml, *options)

    return compiled
