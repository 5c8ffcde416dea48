"""atlas chat and atlas run --chat: prompts by the chat template, commands, and keys of a terminal.

What the model says is llama-trained's; its template here is ours, and jinja2 with the tokenizers library say what the
prompt has to be.
"""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest
import tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "text"))
import chatdump  # noqa: E402

TEMPLATE = """{{ bos_token }}{% for m in messages %}
{% if m.content == 'refuse' %}{{ raise_exception('Nothing of that kind, ' ~ m.role) }}{% endif %}
{{ m.role }}: {{ m.content | trim }}
{% endfor %}{{ strftime_now('%Y-%m-%d') }}{% if add_generation_prompt %} assistant: {% endif %}"""


@pytest.fixture(scope="module")
def checkpoint(repo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat") / "model"
    shutil.copytree(repo / "tests" / "fixtures" / "llama-trained", folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def plan(checkpoint, small_plan_of):
    return small_plan_of(checkpoint)


def ids_of(checkpoint, conversation):
    kind, text = chatdump.oracle(TEMPLATE, conversation, bos_token="<|endoftext|>")
    assert kind == "ok"
    return tokenizers.Tokenizer.from_file(str(checkpoint / "tokenizer.json")).encode(text, add_special_tokens=False).ids


def test_run_chat(atlas, plan, checkpoint):
    bos = json.loads((checkpoint / "tokenizer_config.json").read_text())["bos_token"]
    assert bos == "<|endoftext|>"
    words = [
        "run",
        plan,
        "--device",
        "cpu",
        "--json",
        "-q",
        "-n",
        "4",
        "--chat",
        "--date",
        "2025-07-29",
        "-p",
        " Hello \n",
    ]
    for system in ([], ["-s", "Be brief."]):
        run = atlas(*words, *system)
        assert run.returncode == 0, run.stderr
        messages = [{"role": "system", "content": s} for s in system[1:]] + [{"role": "user", "content": " Hello \n"}]
        assert json.loads(run.stdout)["results"][0]["prompt_tokens"] == ids_of(checkpoint, {"messages": messages})


def test_control_tokens_of_users_are_text(atlas, plan, checkpoint):
    run = atlas("run", plan, "--device", "cpu", "--json", "-q", "-n", "1", "--chat", "-p", "a<|endoftext|>b")
    ids = json.loads(run.stdout)["results"][0]["prompt_tokens"]
    assert ids.count(0) == 1 and ids[0] == 0
    raw = atlas("run", plan, "--device", "cpu", "--json", "-q", "-n", "1", "-p", "a<|endoftext|>b")
    assert 0 in json.loads(raw.stdout)["results"][0]["prompt_tokens"]


@pytest.mark.parametrize(
    "words, said",
    [
        (
            ["run", "--chat", "--tokens", "1"],
            "atlas run: error: --chat takes a text: give -p TEXT or -f FILE, not --tokens\n",
        ),
        (["run", "-p", "x", "-s", "y"], "atlas run: error: --system needs --chat\n"),
        (["run", "-p", "x", "--date", "2026-01-01"], "atlas run: error: --date needs --chat\n"),
        (
            ["run", "--chat", "-p", "x", "--date", "2026-02-30"],
            "atlas run: error: --date 2026-02-30: expected a date such as 2026-01-31\n",
        ),
        (
            ["chat", "--date", "1969-12-31"],
            "atlas chat: error: --date 1969-12-31: expected a date such as 2026-01-31\n",
        ),
        (
            ["chat", "--date", "2026-1-01x"],
            "atlas chat: error: --date 2026-1-01x: expected a date such as 2026-01-31\n",
        ),
    ],
)
def test_usage(atlas, plan, words, said):
    run = atlas(words[0], plan, *words[1:])
    assert (run.returncode, run.stderr) == (2, said)


def test_the_template_refuses(atlas, plan):
    run = atlas("run", plan, "--device", "cpu", "-q", "--chat", "-p", "refuse")
    assert run.returncode == 2 and "error[ARGUMENT]: Nothing of that kind, user\n" in run.stderr


def test_no_template(atlas, small_plan_of, atlasc, checkpoint, tmp_path):
    """Plans without one, and with one that is not compiled: the reason is in info, chats are refused, texts run."""
    plain = small_plan_of("llama-trained")
    for verb in (["chat"], ["run", "--chat", "-p", "x"]):
        run = atlas(verb[0], plain, "--device", "cpu", "-q", *verb[1:])
        assert run.returncode == 4 and "error[UNSUPPORTED]: the checkpoint has no chat template\n" in run.stderr
    shutil.copytree(checkpoint, tmp_path / "m")
    (tmp_path / "m" / "chat_template.jinja").write_text("a\n {% include 'x' %}")
    words = [tmp_path / "m", "--target", "none", "-o", tmp_path / "plan.bin"]
    run = atlasc(*words)
    where = f"{tmp_path}/m/chat_template.jinja:2:5: "
    note = "[A0521]: statement 'include': a chat template with it is not compiled; the plan takes no chats"
    assert run.returncode == 0 and where + "note" + note in run.stderr
    why = "the chat template is not compiled: line 2, column 5: statement 'include': a chat template with it is not compiled"
    info = atlas("info", tmp_path / "plan.bin")
    assert f"chat         no: {why}\n" in info.stdout
    told = json.loads(atlas("info", tmp_path / "plan.bin", "--json").stdout)
    assert (told["has_chat"], told["has_chat_template"], told["no_chat"]) == (False, True, why)
    run = atlas("chat", tmp_path / "plan.bin", "--device", "cpu", "-q")
    assert run.returncode == 4 and f"error[UNSUPPORTED]: {why}\n" in run.stderr
    assert atlas("run", tmp_path / "plan.bin", "--device", "cpu", "-q", "-n", "1", "-p", "x").returncode == 0
    for refuse in ("error", "error=A0521"):
        run = atlasc(*words, "-W", refuse)
        assert run.returncode == 4 and where + "error" + note in run.stderr


def chat(build_dir, plan, lines, *words, cwd=None):
    """A conversation through a pipe: (stdout, stderr)."""
    run = subprocess.run(
        [build_dir / "atlas", "chat", plan, "--device", "cpu", "-n", "12", "--date", "2025-07-29", *words],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=cwd,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout, run.stderr


def test_turns(build_dir, plan, checkpoint, atlas, tmp_path):
    """Each turn is the prompt of all before it; the answers are those of atlas run on these tokens."""
    out, err = chat(
        build_dir,
        plan,
        "Hello\n\n  \nTwo \\\nlines\n/save c.json\n/system Be kind.\nThree\n/save d.json\n",
        cwd=tmp_path,
    )
    saved = json.loads((tmp_path / "d.json").read_text())["messages"]
    assert [m["role"] for m in saved] == ["system"] + ["user", "assistant"] * 3
    assert [m["content"] for m in saved if m["role"] == "user"] == ["Hello", "Two \nlines", "Three"]
    assert json.loads((tmp_path / "c.json").read_text())["messages"] == saved[1:5]
    assert out == "".join(m["content"] + "\n" for m in saved if m["role"] == "assistant")
    for n, first in ((2, 1), (4, 1), (6, 0)):
        ids = ids_of(checkpoint, {"messages": saved[first:n]})
        run = atlas("run", plan, "--device", "cpu", "-q", "-n", "12", "--tokens", ",".join(map(str, ids)))
        assert run.stdout == saved[n]["content"]
        assert f"context {len(ids) + 12} of 512" in err
    assert re.findall(r"atlas chat: 12 tokens, \d+\.\d tokens/s; context \d+ of 512, \d+ %\n", err) != []


def test_commands(build_dir, plan, tmp_path):
    out, err = chat(
        build_dir,
        plan,
        "/help\n/sve\n/what\n/save\n/save no/such/folder\nrefuse\n//x\n/reset\n/save r.json\n"
        "/system S\n/reset\n/save s.json\n/system\n/save t.json\n/exit\nnot read\n",
        "-s",
        "B",
        cwd=tmp_path,
    )
    assert out.startswith("/system TEXT  replace the system message") and "/x" in out
    for line in (
        "/sve: did you mean /save?",
        "/what: no such command; /help lists them",
        "/save needs the name of a file",
        "error: no/such/folder: cannot be written: No such file or directory",
        "error[ARGUMENT]: Nothing of that kind, user",
    ):
        assert f"atlas chat: {line}" in err, line
    for line in (
        "a new conversation",
        "the next answers have this system message",
        "the next answers have no system message",
    ):
        assert f"atlas chat: {line}\n" in err, line
    contents = {n: [m["content"] for m in json.loads((tmp_path / f"{n}.json").read_text())["messages"]] for n in "rst"}
    assert contents == {"r": ["B"], "s": ["S"], "t": []}


@pytest.mark.parametrize(
    "typed, message",
    [
        ('"""one\n  two\n\nthree"""\n', "one\n  two\n\nthree"),
        ('"""\n/reset\ntwo \\\n"""\n', "/reset\ntwo \\"),
        ('"""in a line"""\n', "in a line"),
        ('"""/* in\n\tC */"""\n', "/* in\n\tC */"),
        ('"""// in C"""\n', "// in C"),
        ('say """x"""\n', 'say """x"""'),
        ("two \\\nlines\\\n\\\nend\n", "two \nlines\n\nend"),
    ],
)
def test_messages_of_several_lines(build_dir, plan, tmp_path, typed, message):
    """Between three quotes, as pasted code needs it, or by a backslash at the end of each line."""
    chat(build_dir, plan, typed + "/save q.json\n", cwd=tmp_path)
    assert json.loads((tmp_path / "q.json").read_text())["messages"][0]["content"] == message
    assert chat(build_dir, plan, '"""not ended\nx')[0] == chat(build_dir, plan, "not ended\\\nx")[0]


def test_the_context_ends(build_dir, plan):
    _, err = chat(build_dir, plan, "word " * 600 + "\nshort\n/reset\nshort\n", "-q")
    assert re.fullmatch(
        r"atlas chat: \d+ tokens: the plan's context holds 512; /reset begins another conversation\n", err
    )


def test_interrupted_pipe(build_dir, plan):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [build_dir / "atlas", "chat", plan, "--device", "cpu"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        time.sleep(0.5)
        process.send_signal(number)
        assert process.wait(timeout=20) == 130
        process.communicate()


# A terminal -----------------------------------------------------------------------------------------------------


class Terminal:
    """atlas chat in a pseudo-terminal: keys go in, the screen comes out."""

    def __init__(self, build_dir, plan, *words):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "dumb"
            os.execv(
                build_dir / "atlas", ["atlas", "chat", str(plan), "--device", "cpu", "--date", "2025-07-29", *words]
            )
        self.screen = ""

    def until(self, text, seconds=60):
        """Waits until the text is on the screen; returns what came up to it, and forgets it."""
        end = time.monotonic() + seconds
        while text not in self.screen:
            assert time.monotonic() < end, f"no {text!r} in {self.screen!r}"
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.screen += os.read(self.fd, 65536).decode(errors="replace")
                except OSError as e:
                    raise AssertionError(f"ended: {self.screen!r}") from e
        before, _, self.screen = self.screen.partition(text)
        return before

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def end(self):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.screen += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    pass
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"it does not end: {self.screen!r}")


def test_terminal(build_dir, plan, tmp_path):
    t = Terminal(build_dir, plan, "-n", "5")
    t.until("/help lists")
    t.until("> ")
    t.type("Helo\x02\x02lo \U0001f600\r")  # Ctrl-B twice: before the last two letters
    t.until("5 tokens")
    t.until("> ")
    t.type("dropped\x03")
    t.until("^C")
    t.until("> ")
    t.type('"""a\tb\n')  # a tab is one
    t.until("… ")
    t.type("\x03")
    t.until("> ")
    t.type("\x10\x10\r")  # Ctrl-P: the line before the last one, again
    t.until("5 tokens")
    t.until("> ")
    t.type(f"/save {tmp_path}/h.json\r")
    t.until("4 messages")
    t.until("> ")
    t.type("\x04")
    assert t.end() == 0
    users = [m["content"] for m in json.loads((tmp_path / "h.json").read_text())["messages"] if m["role"] == "user"]
    assert users == ["Helo \U0001f600lo"] * 2


def test_ctrl_c_stops_an_answer(build_dir, plan, tmp_path):
    t = Terminal(build_dir, plan, "-n", "450", "--threads", "1")
    t.until("> ")
    t.type("In the beginning\r")
    t.until("\n", 20)
    time.sleep(0.05)
    t.type("\x03")
    t.until("; stopped")
    t.until("> ")
    t.type(f"/save {tmp_path}/i.json\r")
    t.until("messages")
    t.until("> ")
    t.type("And then?\r")
    t.until("tokens/s")
    t.until("> ")
    t.type("/exit\r")
    assert t.end() == 0
    saved = json.loads((tmp_path / "i.json").read_text())["messages"]
    assert len(saved) == 2
