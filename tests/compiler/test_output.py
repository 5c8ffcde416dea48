"""Where a plan goes: only a regular file is ever replaced, and an output that cannot be is told before any work."""

import json
import os
import re
import socket
import stat
import subprocess

import pytest

FIXTURE = "tests/fixtures/llama-trained"


def a_fifo(path):
    os.mkfifo(path)


def a_folder(path):
    path.mkdir()


def a_symbolic_link(path):
    (path.parent / "target").write_bytes(b"keep me")
    path.symlink_to("target")


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))


# Each verb that writes a file, and how it is told which.
WRITERS = {
    "dump": lambda plan, out: ["dump", plan, "--tokens", "1", "--device", "cpu", "-q", "-o", out],
    "audit": lambda plan, out: ["audit", plan, "--html", out],
    "bench": lambda plan, out: ["bench", plan, "--device", "cpu", "-q", "--only", "none", "--json", out],
    "calibrate": lambda plan, out: ["calibrate", plan, "--file", __file__, "-q", "-o", out],
    "sign": lambda plan, out: ["sign", plan, "--key", out.parent / "key.pem", "-o", out],
}


@pytest.mark.parametrize("make", [a_fifo, a_folder, a_symbolic_link, a_socket])
@pytest.mark.parametrize("command", ["atlasc", *WRITERS])
def test_only_files_are_replaced(atlasc, atlas, plan_of, tmp_path, monkeypatch, make, command):
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    make(tmp_path / "out")
    what = make.__name__.replace("_", " ").replace("fifo", "FIFO")
    if command == "sign":
        subprocess.run(
            ["openssl", "genpkey", "-algorithm", "ed25519", "-out", tmp_path / "key.pem"],
            check=True,
            capture_output=True,
        )
    before = sorted((p.name, p.lstat().st_ino, stat.S_IFMT(p.lstat().st_mode)) for p in tmp_path.iterdir())
    if command == "atlasc":
        run = atlasc(FIXTURE, "-o", tmp_path / "out", timeout=5)  # less than compiling a kernel takes
        assert run.stderr == f"{tmp_path}/out: error[A0103]: not a regular file but {what}\n"
    else:
        run = atlas(*WRITERS[command](plan_of("llama-trained"), tmp_path / "out"))
        assert run.stderr.endswith(f"atlas {command}: error: {tmp_path}/out: not a regular file but {what}\n"), (
            run.stderr
        )
    assert (run.returncode, run.stdout) == (5, "")
    assert before == sorted((p.name, p.lstat().st_ino, stat.S_IFMT(p.lstat().st_mode)) for p in tmp_path.iterdir())
    if make is a_symbolic_link:
        assert (tmp_path / "target").read_bytes() == b"keep me"


@pytest.mark.parametrize("command", ["atlasc", "dump", "audit", "sign"])
def test_a_file_keeps_its_mode_and_a_new_one_obeys_umask(atlasc, atlas, plan_of, tmp_path, command):
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", tmp_path / "key.pem"], check=True, capture_output=True
    )

    def write(out):
        words = WRITERS[command](plan_of("llama-trained"), out) if command in WRITERS else None
        run = atlas(*words) if words else atlasc(FIXTURE, "--target", "none", "-q", "-o", out)
        assert run.returncode == 0, run.stderr
        return stat.S_IMODE(out.stat().st_mode)

    before = os.umask(0o027)
    try:
        assert write(tmp_path / "out") == 0o640
        (tmp_path / "out").chmod(0o600)
        assert write(tmp_path / "out") == 0o600
    finally:
        os.umask(before)


def test_told_with_the_mistakes_of_the_input(atlasc, tmp_path):
    run = atlasc(tmp_path / "absent", "-o", tmp_path / "no" / "plan.bin")
    lines = run.stderr.splitlines()
    assert run.returncode == 5 and len(lines) == 3
    assert lines[0] == f"{tmp_path}/no/plan.bin: error[A0103]: cannot be written: No such file or directory"
    assert "absent/config.json: error[A0102]" in lines[1]


def test_no_output_no_question(atlasc, tmp_path):
    for words in (["--dry-run"], ["--stop-after", "build-graph"]):
        run = atlasc(FIXTURE, "-o", tmp_path / "no" / "plan.bin", "--stop-after", "build-graph", *words)
        assert (run.returncode, run.stderr) == (0, "")


def test_a_plan_is_replaced_by_a_plan(atlasc, kernel_cache, tmp_path):
    plan = tmp_path / "plan.bin"
    plan.write_bytes(b"old")
    run = atlasc(FIXTURE, "-o", plan, "--cache-dir", kernel_cache, timeout=600)
    assert run.returncode == 0 and plan.stat().st_size > 1 << 20
    assert [p.name for p in tmp_path.iterdir()] == ["plan.bin"]


@pytest.mark.parametrize(
    "words,message",
    [
        ([""], "an empty argument: expected the name of a model folder"),
        ([FIXTURE, "-o", ""], "--output needs FILE"),
        ([FIXTURE, "--cache-dir="], "--cache-dir needs DIR"),
        ([FIXTURE, "--target", ""], "--target needs LIST"),
    ],
)
def test_empty_words(atlasc, words, message):
    run = atlasc(*words)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"atlasc: error[A0101]: {message}\n")


def test_words_after_two_dashes(atlasc):
    run = atlasc("--stop-after", "build-graph", "--", FIXTURE)
    assert (run.returncode, run.stderr) == (0, "")
    run = atlasc("--", FIXTURE, "--dry-run")
    assert (run.returncode, run.stderr) == (2, "atlasc: error[A0101]: unexpected argument --dry-run\n")


def test_verbs_of_the_other_command(atlasc, build_dir, tmp_path):
    """atlasc says of each that it is one of atlas, instead of looking for a folder of that name."""
    text = subprocess.run([build_dir / "atlas", "--help"], capture_output=True, text=True, check=True).stdout
    verbs = set(re.findall(r"^  (\w+) {2,}", text, re.M)) - {"calibrate"}  # of both
    assert len(verbs) > 7
    for verb in verbs:
        run = atlasc(verb, "plan.bin", cwd=tmp_path)
        assert (run.returncode, run.stderr) == (
            2,
            f"atlasc: error[A0101]: {verb} works on a plan and is a verb of the other command: atlas {verb} PLAN\n",
        )


def test_options_of_other_commands(atlasc):
    """Whatever a command does not read it refuses, and the options that --help says are of one are taken by none else."""
    listed = re.findall(
        r"^  (?:-\w, |    )(--[\w-]+)( [A-Z|a-z=]+)?(?: +|\n +)(?:\((calibrate|explain|times)\))?",
        atlasc("--help").stdout,
        re.M,
    )
    assert {only for _, _, only in listed} == {"", "calibrate", "explain", "times"}
    taken = {
        "kernels": {"--json"},
        "explain": {"--json", "--list"},
        "calibrate": {"--output", "--text", "--model", "--family", "--quiet", "--warn"},
        "times": {"--json", "--machine-code", "--jobs"},
    }
    assert len(listed) > 20
    for name, argument, only in listed:
        if name in ("--help", "--help-as", "--color", "--version", "--list-ops", "--list-targets", "--help-model"):
            continue
        for command, names in taken.items():
            run = atlasc(command, name, *(["x"] if argument else []))
            refused = f"atlasc: error[A0101]: {name} is not an option of atlasc {command}\n" in run.stderr
            assert refused == (name not in names) and (run.returncode == 2 or not refused), (command, name)
        if only:
            run = atlasc(FIXTURE, name, *(["x"] if argument else []))
            assert (run.returncode, run.stderr) == (
                2,
                f"atlasc: error[A0101]: {name} is an option of atlasc {only} only\n",
            )


@pytest.mark.parametrize(
    "words,message",
    [
        (["explain", "--list", "A0302"], "explain: a code or --list, not both"),
        ([FIXTURE, "--estimate", "--target", "none"], "--estimate: --target none needs no GPU memory"),
        (
            [FIXTURE, "--estimate", "--stop-after", "fuse"],
            "--estimate and --stop-after both end the compile: give one of them",
        ),
    ],
)
def test_words_that_contradict_each_other(atlasc, words, message):
    run = atlasc(*words)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"atlasc: error[A0101]: {message}\n")


def test_a_file_is_no_model(atlasc):
    file = f"{FIXTURE}/config.json"
    run = atlasc(file, "--dry-run")
    assert (run.returncode, run.stderr) == (4, f"{file}: error[A0104]: not a folder: give the checkpoint's folder\n")


def test_json_keeps_its_diagnostics_whatever_the_paths(build_dir, tmp_path):
    """A path is bytes; JSON is UTF-8. What cannot be said is a ?, and nothing is left out."""
    command = [
        os.fsencode(build_dir / "atlasc"),
        os.fsencode(tmp_path) + b"/m\xff",
        b"--json",
        b"-o",
        os.fsencode(tmp_path) + b"/\xfe.bin",
    ]
    run = subprocess.run(command, capture_output=True, check=False)
    told = json.loads(run.stdout.decode())
    assert run.returncode == told["exit_code"] == 4
    assert told["output"] == f"{tmp_path}/?.bin"
    assert len(told["diagnostics"]) == told["errors"] == 2
    assert [d["file"] for d in told["diagnostics"]] == [
        f"{tmp_path}/m?/{name}" for name in ("config.json", "model.safetensors")
    ]
