"""Every command that README, CONTRIBUTING, the pages of tests/ and docs/ and `make help` name is run as written, in a
clean clone of the tree; the verbs and options that they name exist.

A command is a line of a block (```sh, ```text, and ```console after "$ ") or inline code that begins with make, atlas,
atlasc, git, or a program of build/, scripts/ or tests/. Commands of a page run in the order of the page and must end with
exit code 0; commands.toml lists those that do not, with the reason. Inline code that is no whole command (`atlas bench`,
`--trust pub.pem`) is looked up in the help texts.

Names that pages use for files of the reader's, such as plan.bin, are made before each page (STAGE). In `make test` the
clone is a copy of that of tests/make/conftest.py, with the Python packages and compiled kernels of the tree under test; in
`make test-long` (commands with `long`) each command has a clone of its own with nothing in it.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tomllib

import pytest
from clean_clone import clean_clone, outside_make

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parent.parent
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "tests/README.md",
    *sorted(f"docs/{p.name}" for p in (REPO / "docs").glob("*.md")),
]
ROWS = {row["command"]: row for row in tomllib.loads((HERE / "commands.toml").read_text(encoding="utf-8"))["row"]}
KEYS = {"command", "long", "run", "after", "exit", "without_gpu", "not_run"}
HELP = "make help"  # as the name of a page
ENDS = {
    "--version",
    "--help",
    "--help-model",
    "--list-targets",
    "--list-ops",
}  # options that are a whole command of atlasc

# Files of the reader's that pages name, and how a clean clone with a build comes by them. MODEL has few buckets, since
# commands that name no cache folder compile all kernels.
STAGE = """
cp -r tests/fixtures/llama-trained MODEL && ln -s MODEL DIR && ln -s MODEL MODEL_DIR
printf '[runtime]\\nslots = 2\\n[phases]\\nprefill = [64]\\ndecode = [2]\\n' >MODEL/MODEL.toml
echo '{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}' >MODEL/chat_template.jinja
mkdir -p "$HOME/models" build/demo && ln -sfn "$PWD/MODEL" "$HOME/models/Llama-3.2-1B-Instruct"
build/atlasc MODEL -q --cache-dir build/kernel-cache -o plan.bin
for copy in a.bin b.bin OLD NEW new.bin live.bin; do cp plan.bin $copy; done
openssl genpkey -algorithm ed25519 -out key.pem && openssl pkey -in key.pem -pubout -out pub.pem
printf '[plan]\\nwaivers = false\\n' >policy.toml
cp kernels/tuning/sm_90a.h200.toml times.toml
"""
STAGED = """MODEL DIR MODEL_DIR plan.bin a.bin b.bin OLD NEW new.bin live.bin key.pem pub.pem policy.toml plan.bin.cert tune.bin
times.toml bench.json bench.html receipt.json plan.key""".split()


# What pages say -----------------------------------------------------------------------------------------------------


def pieces(text: str) -> list[tuple[str, str]]:
    """(kind, code) in the order of the page: kind is `block` for a command of a block, `inline` for inline code."""
    found = []
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$|`([^`]+)`", text, re.M | re.S):
        kind, block, inline = match.groups()
        if inline:
            found.append(("inline", " ".join(inline.split())))
        elif kind in ("sh", "text"):
            lines = [re.split(r"\s{2,}|\s+#\s", line)[0].strip() for line in block.splitlines()]
            found += [("block", line) for line in lines if line and not line.startswith("#")]
        elif kind == "console":
            found += [("block", line[2:]) for line in block.splitlines() if line.startswith("$ ")]
    return found


def is_whole(code: str) -> bool:
    """Whether inline code is a command to run; else it names a file, a verb or an option."""
    try:
        words = shlex.split(code)
    except ValueError:
        return False
    program, rest = words[0], words[1:]
    name = program.removeprefix("build/")
    if name == "atlas":
        return len(rest) > 1 and not rest[1].startswith("-")
    if name == "atlasc":
        return bool(rest) and (
            rest[0] in ENDS
            or not rest[0].startswith("-")
            and (len(rest) > 1 or rest[0] not in ("calibrate", "explain", "kernels"))
            and rest != ["MODEL"]
        )
    if name in ("make", "git"):
        return bool(rest)
    return program.startswith(("build/", "scripts/", "tests/")) and bool(rest)


def commands(text: str) -> list[str]:
    """Of a page, each once, in its order."""
    return list(dict.fromkeys(code for kind, code in pieces(text) if kind == "block" or is_whole(code)))


def of_help(repo: pathlib.Path) -> list[str]:
    """The targets that `make help` lists, as commands; those that remove or replace what others need, last."""
    said = subprocess.run(
        ["make", "-s", "help"], cwd=repo, env=outside_make(), capture_output=True, text=True, check=True
    )
    found = re.findall(r"^ {2}(make \S+)", said.stdout, re.M)
    assert len(found) > 15, said.stdout
    return sorted(
        found,
        key=lambda command: (
            ["make golden", "make format", "make clean"].index(command) + 1
            if command in ("make golden", "make format", "make clean")
            else 0
        ),
    )


def commands_of(page: str) -> list[str]:
    return of_help(REPO) if page == HELP else commands((REPO / page).read_text(encoding="utf-8"))


# Rows ---------------------------------------------------------------------------------------------------------------


def wrong_rows(rows: dict[str, dict], named: set[str]) -> list[str]:
    """What is wrong with a table, one line each."""
    wrong = [f"no page names `{command}`" for command in rows if command not in named]
    for command, row in rows.items():
        wrong += [f"{command}: unknown key {key}" for key in row.keys() - KEYS]
        wrong += [f"{command}: no reason" for key in ("not_run", "without_gpu") if key in row and len(row[key]) < 5]
        wrong += [
            f"{command}: runs after `{earlier}`, which no page names"
            for earlier in row.get("after", [])
            if earlier not in named
        ]
        if not row.keys() & {"long", "not_run", "without_gpu", "exit"}:
            wrong.append(f"{command}: the row says nothing")
    return wrong


def test_rows_name_commands_of_the_pages():
    assert wrong_rows(ROWS, {command for page in [*PAGES, HELP] for command in commands_of(page)}) == []


# Running ------------------------------------------------------------------------------------------------------------


def environment(clone: pathlib.Path, **more: str) -> dict[str, str]:
    home = clone.parent / "home"
    home.mkdir(exist_ok=True)
    return (
        outside_make()
        | {"HOME": str(home), "DESTDIR": str(clone.parent / "destdir"), "PATH": f"{clone}/build:{os.environ['PATH']}"}
        | more
    )


def fails(clone: pathlib.Path, command: str, row: dict, env: dict[str, str], timeout: float = 300) -> str | None:
    """Runs a command; a line with its words if it does not end as it must."""
    try:
        got = subprocess.run(
            ["bash", "-c", f"set -eo pipefail; {row.get('run', command)}"],
            cwd=clone,
            env=env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as end:
        return f"`{command}`: {timeout} s are over: {str(end.stdout)[-3000:]}"
    has_gpu = pathlib.Path("/dev/nvidiactl").exists()
    if "without_gpu" in row and not has_gpu:
        right = got.returncode != 0 and row["without_gpu"] in got.stdout
    else:
        right = got.returncode == (0 if has_gpu else row.get("exit", 0))
    return None if right else f"`{command}` ends with exit code {got.returncode}: {got.stdout[-3000:]}"


@pytest.fixture(scope="module")
def ready(clone, build_dir, repo, tmp_path_factory):
    """A copy of the built clone with the Python packages and the compiled kernels of the tree under test."""
    folder = tmp_path_factory.mktemp("commands") / "tree"
    shutil.copytree(clone, folder, symlinks=True)
    (folder / "build/venv").symlink_to(repo / "build/venv")
    unfinished = shutil.ignore_patterns("*.tmp.*")  # of a test in another process
    shutil.copytree(build_dir / "kernel-cache", folder / "build/kernel-cache", ignore=unfinished, dirs_exist_ok=True)
    yield folder
    shutil.rmtree(folder)


def unstage(clone: pathlib.Path) -> None:
    for path in (clone / name for name in STAGED):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("page", [*PAGES, HELP])
def test_commands_run(ready, page):
    env = environment(ready, CUDA_HOME="none")
    assert fails(ready, STAGE, {}, env) is None
    failed = []
    for command in commands_of(page):
        row = ROWS.get(command, {})
        if not row.keys() & {"long", "not_run"}:
            failed.append(fails(ready, command, row, env))
        if command == "make format":  # check_format.sh judges what it changes
            subprocess.run(["git", "checkout", "-q", "."], cwd=ready, check=True)
    unstage(ready)
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ready, capture_output=True, text=True, check=True
    ).stdout
    if changed:
        failed.append(f"changed or left behind: {changed}")
        subprocess.run(["git", "checkout", "-q", "."], cwd=ready, check=True)  # the next page is not to blame
    assert "\n".join(filter(None, failed)) == ""


@pytest.mark.long
@pytest.mark.parametrize("command", [command for command, row in ROWS.items() if "long" in row])
def test_long_commands_run(repo, tmp_path, command):
    row = ROWS[command]
    clone = clean_clone(repo, tmp_path / "tree")
    env = outside_make()
    for earlier in row.get("after", []):
        assert fails(clone, earlier, {}, env, ROWS.get(earlier, {}).get("long", 300)) is None
    failed = fails(clone, command, row, env, row["long"])
    if failed and "exit code 5: " in failed and command == "make test-fresh":
        pytest.skip(failed.splitlines()[-1])
    assert failed is None
    shutil.rmtree(clone)


# Verbs and options --------------------------------------------------------------------------------------------------


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*|(?<![\w-])-[a-zA-Z]\b", text))


def unknown(code: str, helps: dict[str, str]) -> list[str]:
    """Verbs and options in a piece of code that no help text knows. `helps` has a text for each of `atlas VERB` and for
    `atlasc`, and under "" those of the scripts."""
    found = re.match(r"(?:build/)?(atlasc|atlas)\b(?: ([a-z]+)\b)?", code)
    if not found:
        known = options_in("\n".join(helps.values()))
        return (
            [f"`{code}`: no command has {option}" for option in sorted(options_in(code) - known)]
            if code.startswith("-")
            else []
        )
    program, verb = found.groups()
    if program == "atlasc":
        known = options_in(helps["atlasc"])
        if (
            verb
            and not re.search(rf"^ *atlasc {verb} ", helps["atlasc"], re.M)
            and code.split()[1] == verb
            and len(code.split()) == 2
        ):
            return [f"`{code}`: atlasc has no {verb}"]
    elif verb is None:
        known = options_in(helps["atlas"])
    elif f"atlas {verb}" not in helps:
        return [f"`{code}`: atlas has no verb {verb}"]
    else:
        known = options_in(helps[f"atlas {verb}"])
    return [
        f"`{code}`: {' '.join(filter(None, (program, verb)))} has no {option}"
        for option in sorted(options_in(code) - known)
    ]


@pytest.fixture(scope="module")
def helps(atlas, atlasc, repo) -> dict[str, str]:
    texts = {"atlasc": atlasc("--help").stdout, "atlas": atlas("--help").stdout}
    verbs = re.findall(r"^ {2}([a-z]+) {2,}\S", texts["atlas"], re.M)
    assert len(verbs) > 8
    texts |= {f"atlas {verb}": atlas(verb, "--help").stdout for verb in verbs}
    scripts = [repo / "tests/run", repo / "tests/golden/run", *sorted((repo / "scripts").glob("*.sh"))]
    texts[""] = "\n".join(
        line for path in scripts for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")
    )
    for tool in ("scripts/gpu_report.py", "tests/mutation/run"):
        texts[""] += subprocess.run([repo / tool, "--help"], capture_output=True, text=True, check=True).stdout
    return texts


@pytest.mark.parametrize("page", PAGES)
def test_verbs_and_options_exist(repo, helps, page):
    found = [line for _, code in pieces((repo / page).read_text(encoding="utf-8")) for line in unknown(code, helps)]
    assert found == []


# What the functions above see ---------------------------------------------------------------------------------------

PAGE = """# x

Run `make lines`, or `atlas
bench plan.bin`; not `atlas bench`, `scripts/x.sh`, `--trust PEM` or `make`.

```sh
make demo      # builds
# only a remark
build/atlas audit p --why 'a[1]'
```
```text
make hooks             git runs the checks
cp a b && mv b c
```
```console
$ build/atlas info p
it prints this
```
```tree
make/   a folder
```
"""


def test_commands_are_found_in_order():
    assert commands(PAGE) == [
        "make lines",
        "atlas bench plan.bin",
        "make demo",
        "build/atlas audit p --why 'a[1]'",
        "make hooks",
        "cp a b && mv b c",
        "build/atlas info p",
    ]


@pytest.mark.parametrize(
    "code, whole",
    [
        ("build/atlas verify --each-layer", False),
        ("build/atlas diff OLD NEW", True),
        ("atlasc --sign key.pem", False),
        ("build/atlasc --list-targets", True),
        ("atlasc explain", False),
        ("atlasc explain A0312", True),
        ("build/atlasc", False),
        ("tests/run --only unit", True),
        ("tests/run", False),
        ("git status", True),
        ("don't", False),
        ("build/atlasc MODEL", False),
    ],
)
def test_what_is_a_whole_command(code, whole):
    assert is_whole(code) == whole


def test_wrong_rows_are_named():
    rows = {
        "make a": {"command": "make a", "long": 1},
        "make b": {"command": "make b", "why": "x"},
        "make c": {"command": "make c", "not_run": "", "after": ["make d"]},
    }
    assert wrong_rows(rows, {"make b", "make c"}) == [
        "no page names `make a`",
        "make b: unknown key why",
        "make b: the row says nothing",
        "make c: no reason",
        "make c: runs after `make d`, which no page names",
    ]


@pytest.mark.parametrize(
    "command, row, says",
    [
        ("true", {}, None),
        ("false", {}, "`false` ends with exit code 1: "),
        ("false | true", {}, "exit code 1"),
        ("exit 4", {"exit": 4}, None),
        ("true", {"exit": 4}, "exit code 0"),
        ("echo words; exit 2", {}, "exit code 2: words"),
        ("false", {"run": "true"}, None),
        ("sleep 9", {}, "`sleep 9`: 1 s are over"),
    ],
)
def test_what_fails_is_named(tmp_path, command, row, says):
    got = fails(tmp_path, command, row, dict(os.environ), 1)
    assert got is None if says is None else says in got


@pytest.mark.parametrize(
    "code, says",
    [
        ("atlas run --seed 1", None),
        ("atlas run --seeds 1", "atlas run has no --seeds"),
        ("atlas walk", "atlas has no verb walk"),
        ("build/atlas --version", None),
        ("atlasc --seed", None),
        ("build/atlasc MODEL --sed 1", "atlasc has no --sed"),
        ("atlasc calibrate", None),
        ("atlasc calibrates", "atlasc has no calibrates"),
        ("--trust PEM", None),
        ("--trusts PEM", "no command has --trusts"),
        ("-z", "no command has -z"),
        ("make -n x", None),
    ],
)
def test_unknown_verbs_and_options_are_named(code, says):
    helps = {
        "atlas": "  run  x\n  --version",
        "atlas run": "--seed N --trust PEM",
        "atlasc": "atlasc calibrate x\n --seed --list",
        "": "--long",
    }
    got = unknown(code, helps)
    assert got == [] if says is None else len(got) == 1 and says in got[0]
