#!/usr/bin/env python3
"""What the GPU of this machine makes of the kernels, in one JSON file and one page that can be sent.

    scripts/gpu_report.py [--build-dir build] [--out DIR] [--commit COMMIT] [--jobs N] [--only PART[,PART]]

Parts: kernels (every template against the reference device, in rounds of random cases), fixtures (committed
checkpoints: layers against the reference device, greedy tokens against those committed with them), receipt (what the
driver ran against the plan's list), memory (predicted and measured), bench (two shapes with random weights).
Uses the programs of BUILD alone; plans are compiled here. Each test has passed, failed, or was not run for a reason:
no GPU, a fake driver, a time limit, another test before it. Host and user names and paths are removed from the text.

Exit code: 0 all passed; 1 a test failed; 2 wrong usage; 5 none failed, but some or all were not run.
"""

from __future__ import annotations

import argparse
import ctypes
import html
import json
import math
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

REPO = pathlib.Path(__file__).resolve().parent.parent
PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
FAKE = "fake driver"
ROUNDS, CASES = 3, 2  # of kernels: processes, each with so many random cases of every template
LIMIT = {"kernels": 150, "fixtures": 100, "receipt": 40, "memory": 30, "bench": 90}  # seconds of a part
WATCHED = ("llama-trained", "llama-fp8-block", "qwen3_moe", "qwen3_next")  # by receipt and memory
BENCHED = ("smollm2-135m", "llama-3.2-1b")
BENCH_ROWS = "pp2048,tg128@0x1"
LEAST, PLAIN = 0.001, 8  # of what a cosine may lose: in any case, and times what bfloat16 loses (gpu/fixtures.py)
CC_MAJOR, CC_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


class NotRun(Exception):
    """Why a test was not run."""


class Failed(Exception):
    """What a test found wrong; `figures` were measured before."""

    def __init__(self, why: str, figures: dict | None = None):
        super().__init__(why)
        self.figures = figures or {}


# The card ------------------------------------------------------------------------------------------


def find_card() -> tuple[dict | None, str]:
    """The first GPU, by the driver library that the programs will open, or None and why there is none."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        find = library.cuGetProcAddress_v2
    except (OSError, AttributeError):
        return None, "no CUDA driver: libcuda.so.1 cannot be opened, or is older than 12.0"

    def call(name: str, since: int, *args: object) -> int:
        at, status = ctypes.c_void_p(), ctypes.c_int()
        if find(name.encode(), ctypes.byref(at), since, ctypes.c_uint64(0), ctypes.byref(status)) or not at.value:
            return -1
        return ctypes.CFUNCTYPE(ctypes.c_int)(at.value)(*args)

    version, count, device, major, minor = (ctypes.c_int() for _ in range(5))
    name = ctypes.create_string_buffer(256)
    rc = call("cuInit", 2000, 0)
    if rc:
        return None, f"no usable GPU: cuInit returns {rc}"
    rc = call("cuDeviceGetCount", 2000, ctypes.byref(count))
    if rc or count.value < 1:
        return None, "no GPU: the driver lists none"
    rc = (
        call("cuDriverGetVersion", 2020, ctypes.byref(version))
        or call("cuDeviceGet", 2000, ctypes.byref(device), 0)
        or call("cuDeviceGetName", 2000, name, len(name), device)
        or call("cuDeviceGetAttribute", 2000, ctypes.byref(major), CC_MAJOR, device)
        or call("cuDeviceGetAttribute", 2000, ctypes.byref(minor), CC_MINOR, device)
    )
    if rc:
        return None, f"the first GPU cannot be asked: the driver returns {rc}"
    is_fake = hasattr(library, "cuAtlasFakeDriver")
    return {
        "name": name.value.decode("utf-8", "replace"),
        "compute_capability": f"{major.value}.{minor.value}",
        "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
        "driver": None if is_fake else driver_version(),
        "is_fake": is_fake,
    }, ""


def driver_version() -> str | None:
    """ "580.159.04", of the kernel module, or None where it cannot be read."""
    try:
        text = pathlib.Path("/proc/driver/nvidia/version").read_text(errors="replace")
    except OSError:
        text = ""
    found = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    if found:
        return found[1]
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"\d+[\d.]*", done.stdout)
    return found[0] if found else None


def target_of(capability: str, names: list[str]) -> str | None:
    """Of the compiler's targets the last whose cubins run there; those of sm_...a run on one capability alone."""
    major, minor = (int(x) for x in capability.split("."))
    best = None
    for name in names:
        digits = re.fullmatch(r"sm_(\d+)(\d)(a?)", name)
        fits = (
            digits and int(digits[1]) == major and (int(digits[2]) == minor if digits[3] else int(digits[2]) <= minor)
        )
        best = name if fits else best
    return best


def with_nvrtc(build: pathlib.Path) -> dict[str, str]:
    """The environment of programs: where NVRTC is not where the build found it, an installed one."""
    env = dict(os.environ)
    done = subprocess.run([str(build / "atlasc"), "--version"], capture_output=True, text=True, check=False)
    if not re.search(r"^NVRTC: /", done.stdout, re.M):
        places = sorted(pathlib.Path("/usr/local").glob("cuda*")) + [pathlib.Path(p) for p in ("/usr/lib", "/opt")]
        for place in places + [pathlib.Path.home()]:
            found = next((p for p in place.rglob("libnvrtc.so.13*")), None) if place.is_dir() else None
            if found:
                env["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(found.parent), env.get("LD_LIBRARY_PATH")]))
                break
    return env


# What leaves the machine -----------------------------------------------------------------------------


def private_words() -> list[str]:
    words = {
        socket.gethostname(),
        socket.gethostname().split(".")[0],
        os.environ.get("USER", ""),
        os.environ.get("LOGNAME", ""),
        pathlib.Path.home().name,
    }
    return sorted((w for w in words if len(w) > 2 and w != "root"), key=len, reverse=True)


def clean(text: str, limit: int = 400) -> str:
    """Text of a program without paths, names of this host and its user, or control characters."""
    text = re.sub(r"(?<![\w.])~?/(?:[^\s/:'\",]+/)*([^\s/:'\",]*)", r"\1", text.replace(str(REPO), "."))
    for word in private_words():
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "[removed]", text)
    text = "".join(c if c.isprintable() else " " for c in text).strip()
    return text if len(text) <= limit else text[:limit] + " ..."


# Running ---------------------------------------------------------------------------------------------


class Kit:
    """What tests need: the build, the card, a folder of scratch, and the results so far."""

    def __init__(self, args: argparse.Namespace, scratch: pathlib.Path):
        self.build, self.jobs, self.scratch = args.build_dir.resolve(), args.jobs, scratch
        self.env = with_nvrtc(self.build)
        self.cache = scratch / "kernel-cache"
        if args.cache_dir:
            self.cache = args.cache_dir.resolve()
        self.card, self.no_card = find_card()
        self.target: str | None = None
        self.results: list[dict] = []
        self.lock = threading.Lock()
        self.ends = time.monotonic() + 60  # of the part that runs

    def begin(self, part: str) -> None:
        self.ends = time.monotonic() + LIMIT[part]

    def run(self, program: str, *args: object, codes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess:
        """A program of the build in the tree's root, ended with its children at the part's limit."""
        left = self.ends - time.monotonic()
        if left <= 0:
            raise NotRun("time limit of its part")
        words = [str(self.build / program), *(str(a) for a in args)]
        try:
            child = subprocess.Popen(
                words,
                cwd=REPO,
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as e:
            raise NotRun(f"{program} cannot be started: {e.strerror}") from e
        try:
            out, err = child.communicate(timeout=left)
        except subprocess.TimeoutExpired as e:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            raise NotRun(f"time limit of its part, {program} {args[0]} was running") from e
        except BaseException:  # interrupted: the child has a process group of its own
            os.killpg(child.pid, signal.SIGKILL)
            raise
        done = subprocess.CompletedProcess(words, child.returncode, out, err)
        if done.returncode not in codes:
            said = [line for line in err.splitlines() if "error" in line] or err.splitlines() or ["no message"]
            raise Failed(f"{program} {args[0]}: exit code {done.returncode}: {' '.join(said[:3])}")
        return done

    def document(self, program: str, *args: object, codes: tuple[int, ...] = (0,)) -> dict:
        done = self.run(program, *args, codes=codes)
        try:
            return json.loads(done.stdout)
        except ValueError as e:
            raise Failed(f"{program} {args[0]}: exit code {done.returncode}, and no JSON on stdout") from e

    def add(self, part: str, name: str, status: str, reason: str | None, figures: dict, seconds: float) -> None:
        if status == PASSED and not (self.card and not self.card["is_fake"]):
            status, reason = NOT_RUN, FAKE  # what a fake driver makes is no result of a GPU
        with self.lock:
            self.results.append(
                {
                    "part": part,
                    "name": name,
                    "status": status,
                    "reason": reason and clean(reason),
                    "figures": figures,
                    "seconds": round(seconds, 3),
                }
            )

    def test(self, part: str, name: str, body, *args: object) -> None:
        """One test: body(*args) returns its figures, or raises Failed or NotRun."""
        start = time.monotonic()
        status, reason, figures = PASSED, None, {}
        try:
            figures = body(*args)
        except NotRun as e:
            status, reason = NOT_RUN, str(e)
        except Failed as e:
            status, reason, figures = FAILED, str(e), e.figures
        except (KeyError, TypeError, ValueError, IndexError, StopIteration) as e:
            status, reason = FAILED, f"a program's answer has another form: {type(e).__name__} {e}"
        self.add(part, name, status, reason, figures, time.monotonic() - start)

    def compile(self, source: pathlib.Path, plan: pathlib.Path, *args: object) -> None:
        self.run("atlasc", source, "--target", self.target, "-o", plan, "-q", "--cache-dir", self.cache, *args)

    def plan_of(self, fixture: str) -> pathlib.Path:
        plan = self.scratch / f"{fixture}.bin"
        if not plan.exists():
            self.compile(REPO / "tests" / "fixtures" / fixture, plan)
        return plan


# Goldens of fixtures ---------------------------------------------------------------------------------


def read_tensors(path: pathlib.Path, names: tuple[str, ...]) -> dict[str, list]:
    """Tensors of a safetensors file by name, flat; matrices as rows."""
    data = path.read_bytes()
    n = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8 : 8 + n])
    out: dict[str, list] = {}
    for name in names:
        t = header[name]
        raw = data[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]]
        if t["dtype"] == "BF16":
            raw = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
        form = {"I64": "q", "F32": "f", "BF16": "f"}[t["dtype"]]
        flat = list(struct.unpack(f"<{len(raw) // struct.calcsize(form)}{form}", raw))
        width = t["shape"][-1]
        out[name] = flat if len(t["shape"]) == 1 else [flat[i : i + width] for i in range(0, len(flat), width)]
    return out


def cosine(a: list[float], b: list[float]) -> float:
    dot = math.fsum(x * y for x, y in zip(a, b))
    return dot / math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))


def check_fixture(kit: Kit, name: str) -> dict:
    folder = REPO / "tests" / "fixtures" / name
    golden = read_tensors(
        folder / "golden.safetensors", ("p0.input_ids", "p0.logits", "p0.logits_bf16", "p0.greedy", "p0.margin")
    )
    ids = ",".join(str(i) for row in golden["p0.input_ids"] for i in (row if isinstance(row, list) else [row]))
    exact, rounded = golden["p0.logits"], golden["p0.logits_bf16"]
    noise = max(abs(x - y) for a, b in zip(exact, rounded) for x, y in zip(a, b))
    rows = sorted(cosine(a, b) for a, b in zip(exact, rounded))
    has_experts = "num_experts" in (folder / "config.json").read_text()  # one that noise sends elsewhere counts little
    kind, loud = ("median", 1 - rows[(len(rows) - 1) // 2]) if has_experts else ("cosine", 1 - rows[0])
    start = time.monotonic()
    plan = kit.plan_of(name)
    figures: dict = {"compile_s": round(time.monotonic() - start, 3)}
    layers = kit.document("atlas", "verify", plan, "--tokens", ids, "--device", "cuda", "--json", "-q", codes=(0, 1))
    lost = 1 - min(row[kind] for row in layers["outputs"])
    theirs = golden["p0.greedy"]
    ours = kit.document(
        "atlas",
        "run",
        plan,
        "--tokens",
        ids,
        "-n",
        len(theirs),
        "--temperature",
        "0",
        "--repetition-penalty",
        "1",
        "--device",
        "cuda",
        "--json",
        "-q",
        "--speculate",
        "off",
    )["results"][0]["tokens"]
    same = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
    allowed = max(LEAST, PLAIN * loud)
    figures |= {"cosine_lost": lost, "cosine_may_lose": allowed, "tokens_equal": same, "tokens": len(theirs)}
    if not lost <= allowed:
        raise Failed(
            f"an output loses {lost:.6f} of its cosine with the reference device, {allowed:.6f} is allowed", figures
        )
    whole = 0 < same == min(len(theirs), len(ours))
    if not whole and not (same < len(ours) and golden["p0.margin"][same] <= noise):
        raise Failed(f"token {same} of the answer is another one than that of transformers", figures)
    return figures


# Parts -----------------------------------------------------------------------------------------------


def kernels(kit: Kit, names: list[str]) -> None:
    """Rounds of one process each; a template's result is that of all rounds that ended."""
    tally: dict[str, dict] = {}
    why: dict[str, str] = {}
    stopped, start = None, time.monotonic()
    for i in range(ROUNDS):
        try:
            done = kit.run("tests-gpu/kernel_test", "--cases", CASES, "--seed", i + 1, "--jobs", kit.jobs, codes=(0, 1))
        except (NotRun, Failed) as e:
            stopped = e
            break
        for line in done.stdout.splitlines():
            row = re.fullmatch(r"(\w+) +\w+ +(\d+) +(\d+) +(\S+)  (ok|FAIL)", line)
            if row:
                t = tally.setdefault(row[1], {"cases": 0, "elements": 0, "worst_of_tolerance": 0.0})
                t["cases"] += int(row[2])
                t["elements"] += int(row[3])
                worst = float(row[4])
                if not math.isfinite(worst):
                    t["worst_of_tolerance"] = None  # an element is not finite: no number of JSON
                elif t["worst_of_tolerance"] is not None:
                    t["worst_of_tolerance"] = max(t["worst_of_tolerance"], worst)
                if row[5] == "FAIL":
                    why.setdefault(row[1], "a case is out of tolerance")
            found = re.match(r"FAIL (\w+) seed \d+: (.*)", line)
            if found:
                why[found[1]] = found[2]
        if done.returncode and not why:
            stopped = Failed(f"kernel_test: exit code {done.returncode}, and no template failed")
        if done.returncode:
            break
    seconds = (time.monotonic() - start) / max(len(names), 1)  # all run together: an equal share each
    for name in names:
        if name in why:
            kit.add("kernels", name, FAILED, why[name], tally.get(name, {}), seconds)
        elif isinstance(stopped, Failed):  # it may be any of them
            kit.add("kernels", name, FAILED, str(stopped), tally.get(name, {}), seconds)
        elif tally.get(name, {}).get("cases"):
            kit.add("kernels", name, PASSED, None, tally[name], seconds)
        else:
            kit.add("kernels", name, NOT_RUN, str(stopped or "the kernel test lists no case of it"), {}, seconds)


def receipt(kit: Kit, fixture: str) -> dict:
    answer = kit.document("atlas", "receipt", kit.plan_of(fixture), "--json", codes=(0, 1))
    figures = {
        "graph_nodes": answer["graphs"]["nodes"],
        "graph_nodes_different": answer["graphs"]["different"],
        "launches_planned": answer["launches"]["planned"],
        "launches_observed": answer["launches"]["observed"],
        "observed_by": answer["observed_by"],
    }
    if not answer["equal"]:
        raise Failed("what ran is not what the plan lists", figures)
    if answer["launches"]["observed"] is None and not kit.card["is_fake"]:
        figures["remark"] = "no CUPTI: graphs were read back, launches were not observed"
    return figures


def memory(kit: Kit, fixture: str) -> dict:
    answer = kit.document("atlas", "memory", kit.plan_of(fixture), "--json", codes=(0, 1))
    measured = answer["measured"]
    if not measured:
        raise Failed("nothing was measured")
    figures = {"predicted_bytes": answer["device_bytes"], "peak_bytes": measured["peak"]}
    if not measured["within"]:
        raise Failed(f"the peak is further than {measured['bar']} bytes from what was predicted", figures)
    return figures


def bench(kit: Kit, shape: str) -> dict:
    plan, out = kit.scratch / f"bench-{shape}.bin", kit.scratch / f"bench-{shape}.json"
    model = kit.scratch / f"{shape}.toml"
    model.write_text("[runtime]\nslots = 1\nmax_context = 4096\n[phases]\nprefill = [2048]\ndecode = [1]\n")
    kit.compile(
        REPO / "tests" / "gpu" / "shapes" / f"{shape}.json",
        plan,
        "--random-weights",
        "--weights",
        "ref",
        "--model",
        model,
    )
    kit.run("atlas", "bench", plan, "-q", "--device", "cuda", "--only", BENCH_ROWS, "--json", out)
    answer = json.loads(out.read_text())
    figures: dict = {"start_first_token_ms": answer["start"]["first_token_ms"]}
    for row in answer["rows"]:
        for key in ("tokens_s", "spread", "gbps", "tflops", "percent"):
            if isinstance(row.get(key), (int, float)):
                figures[f"{row['name']} {key}"] = row[key]
    if not any(key.endswith("tokens_s") for key in figures):
        raise Failed("no row was measured", figures)
    return figures


def tests_of(kit: Kit, parts: list[str], names: list[str]) -> dict[str, list[str]]:
    """Every test there is, by part."""
    fixtures = sorted(p.parent.name for p in (REPO / "tests" / "fixtures").glob("*/golden.safetensors"))
    every = {
        "kernels": names,
        "fixtures": fixtures,
        "receipt": list(WATCHED),
        "memory": list(WATCHED),
        "bench": list(BENCHED),
    }
    return {part: every[part] for part in parts}


def run_parts(kit: Kit, tests: dict[str, list[str]]) -> None:
    bodies = {"fixtures": check_fixture, "receipt": receipt, "memory": memory, "bench": bench}
    is_fake = kit.card["is_fake"]
    for part, names in tests.items():
        print(f"{part}: {len(names)} tests, at most {LIMIT[part]} s", file=sys.stderr, flush=True)
        kit.begin(part)
        if is_fake:  # the driver runs a plan by the meaning of its ops: one of each part shows that the chain is whole
            for name in names:
                if part in ("kernels", "bench") or name != WATCHED[0]:
                    kit.add(part, name, NOT_RUN, FAKE, {}, 0)
                else:
                    kit.test(part, name, bodies[part], kit, name)
        elif part == "kernels":
            kernels(kit, names)
        elif part == "fixtures":
            with ThreadPoolExecutor(max(1, min(8, kit.jobs // 2))) as pool:
                list(pool.map(lambda name, p=part: kit.test(p, name, check_fixture, kit, name), names))
        else:
            for name in names:
                kit.test(part, name, bodies[part], kit, name)


# The report ------------------------------------------------------------------------------------------


def commit_of(given: str | None) -> str:
    if given:
        return given
    try:
        git = ["git", "-C", str(REPO)]
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        dirty = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    if head.returncode:
        return "unknown"
    return head.stdout.strip() + (" with changes" if dirty.stdout.strip() else "")


def count(results: list[dict]) -> dict[str, int]:
    return {s: sum(r["status"] == s for r in results) for s in (PASSED, FAILED, NOT_RUN)}


def shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222 }}
table {{ border-collapse: collapse; margin: 1em 0 }}
td, th {{ text-align: left; padding: .2em .8em .2em 0; border-bottom: 1px solid #ddd; vertical-align: top }}
.passed {{ color: #17692b }} .failed {{ color: #b00020; font-weight: bold }} .not-run {{ color: #8a5a00 }}
</style></head><body>
<h1>{title}</h1>
<table>{head}</table>
<p>{summary}</p>
{parts}
</body></html>
"""


def page(report: dict) -> str:
    e = html.escape
    card = report["card"] or {}
    head = [
        ("card", card.get("name") or report["no_card"]),
        ("compute capability", card.get("compute_capability")),
        ("target", report["target"]),
        ("driver", card.get("driver")),
        ("CUDA version", card.get("cuda")),
        ("atlas", report["version"]),
        ("commit", report["commit"]),
        ("date", report["date"]),
        ("duration", f"{report['seconds']:.0f} s"),
    ]
    parts = []
    for part in dict.fromkeys(r["part"] for r in report["tests"]):
        rows = "".join(
            f'<tr><td>{e(r["name"])}</td><td class="{r["status"].replace(" ", "-")}">{r["status"]}'
            f"{e(': ' + r['reason']) if r['reason'] else ''}</td>"
            f"<td>{e(', '.join(f'{k} {shown(v)}' for k, v in r['figures'].items()))}</td>"
            f"<td>{r['seconds']:.1f} s</td></tr>\n"
            for r in report["tests"]
            if r["part"] == part
        )
        parts.append(
            f"<h2>{e(part)}</h2>\n<table><tr><th>test</th><th>status</th><th>figures</th>"
            f"<th>duration</th></tr>\n{rows}</table>"
        )
    return PAGE.format(
        title=e(f"atlas on {card.get('name') or 'no GPU'}"),
        summary=e(report["summary"]),
        head="".join(f"<tr><th>{e(k)}</th><td>{e(str(v if v is not None else 'unknown'))}</td></tr>" for k, v in head),
        parts="\n".join(parts),
    )


def write(path: pathlib.Path, text: str) -> None:
    """Whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Tests the kernels on this machine's GPU; writes a report to send.",
        epilog="Exit code: 0 all passed, 1 a test failed, 5 some or all were not run.",
    )
    parser.add_argument("--build-dir", type=pathlib.Path, default=REPO / "build", help="folder with atlasc and atlas")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the report (default: BUILD/gpu-report)")
    parser.add_argument("--commit", help="of the build, where the tree is no git checkout")
    parser.add_argument("--jobs", type=int, default=min(64, os.cpu_count() or 1), help="kernels compiled at a time")
    parser.add_argument("--cache-dir", type=pathlib.Path, help="compiled kernels to use again (default: none)")
    parser.add_argument("--only", default=",".join(LIMIT), help="parts, comma-separated (default: all)")
    args = parser.parse_args(argv)
    args.only = args.only.split(",")
    if any(part not in LIMIT for part in args.only):
        parser.error(f"--only takes {', '.join(LIMIT)}")
    if not 1 <= args.jobs <= 64:
        parser.error("--jobs takes 1 to 64")
    args.out = args.out or args.build_dir / "gpu-report"
    return args


def main(argv: list[str]) -> int:
    args = parse(argv)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        kit = Kit(args, pathlib.Path(folder))
        try:
            version = kit.run("atlas", "--version").stdout.split("\n")[0]
            listed = kit.document("atlasc", "kernels", "--json")["kernels"]
        except (NotRun, Failed) as e:
            print(f"gpu_report: {clean(str(e))}; run `make tests` first", file=sys.stderr)
            return 5
        targets = kit.run("atlasc", "--list-targets").stdout
        names = re.findall(r"^(sm_\w+)", targets, re.M)
        why = kit.no_card
        if kit.card:
            kit.card["name"] = clean(kit.card["name"], 100)
            kit.target = target_of(kit.card["compute_capability"], names)
            if not kit.target:
                why = f"no target for compute capability {kit.card['compute_capability']}"
        tests = tests_of(kit, args.only, [k["name"] for k in listed if not kit.target or kit.target in k["targets"]])
        if kit.target:
            run_parts(kit, tests)
        else:
            for part, every in tests.items():
                for name in every:
                    kit.add(part, name, NOT_RUN, why, {}, 0)
    order = {(part, name): i for i, (part, name) in enumerate((p, n) for p, every in tests.items() for n in every)}
    kit.results.sort(key=lambda r: order[r["part"], r["name"]])
    n = count(kit.results)
    summary = f"{n[PASSED]} passed, {n[FAILED]} failed, {n[NOT_RUN]} not run"
    report = {
        "schema_version": 1,
        "version": version,
        "commit": commit_of(args.commit),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "card": kit.card,
        "no_card": why or None,
        "target": kit.target,
        "summary": summary,
        "counts": {k.replace(" ", "_"): v for k, v in n.items()},
        "seconds": round(time.monotonic() - start, 1),
        "tests": kit.results,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    write(args.out / "gpu-report.json", json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    write(args.out / "gpu-report.html", page(report))
    print(f"{kit.card['name'] + ', ' + str(kit.target) if kit.card else why}")
    for part in tests:
        of = count([r for r in kit.results if r["part"] == part])
        print(f"{part:10s} {of[PASSED]:3d} passed {of[FAILED]:3d} failed {of[NOT_RUN]:3d} not run")
    for r in kit.results:
        if r["status"] == FAILED:
            print(f"failed: {r['part']} {r['name']}: {r['reason']}")
    for reason in dict.fromkeys(r["reason"] for r in kit.results if r["status"] == NOT_RUN):
        print(f"not run: {sum(r['reason'] == reason for r in kit.results)} tests: {reason}")
    print(f"{summary}\n{args.out / 'gpu-report.json'}\n{args.out / 'gpu-report.html'}")
    return 1 if n[FAILED] else 5 if n[NOT_RUN] or not n[PASSED] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
