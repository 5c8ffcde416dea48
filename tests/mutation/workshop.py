"""Makes mutants and asks checks about them; tests/mutation/run says what kinds there are."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import threading
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parent.parent
FIXTURES = REPO / "tests" / "fixtures"
TABLE = HERE / "mutants.toml"
ROOMS = ("artifacts", "compiler", "kernels", "models", "runtime", "scripts", "tests")
WITH_HEAD = ("qwen3_5_moe-trained",)  # which drafts, in plans for the reference device
TOLERANCE = 1e-5  # of goldens, as in tests/cpu/test_golden.py


class CannotBeMade(Exception):
    """There is no mutant to judge: it does not apply or compile, or its check refuses what is not mutated."""


def must(code: int, words: str) -> str:
    if code:
        raise CannotBeMade(f"exit code {code}: {words[-600:]}")
    return words


def apart_from_make() -> dict[str, str]:
    """The environment without the variables by which a make that runs this speaks to makes it starts itself."""
    return {
        k: v
        for k, v in os.environ.items()
        if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "GNUMAKEFLAGS")
    }


def table(path: pathlib.Path = TABLE) -> list[dict]:
    return tomllib.loads(path.read_text(encoding="utf-8"))["row"]


def mutants(path: pathlib.Path = TABLE) -> list[dict]:
    return [m | {"row": row["n"]} for row in table(path) for m in row.get("mutant", [])]


def sample(all_mutants: list[dict]) -> list[dict]:
    """The first mutant of each kind in each folder (of plans, models and the kernel table: of each checkpoint)."""
    first: dict = {}
    for m in all_mutants:
        first.setdefault((m["kind"], m.get("base") or pathlib.Path(m.get("file", "")).parent), m)
    return list(first.values())


def replaced(text: str, changes: list[list[str]], where: str) -> str:
    for old, new in changes:
        if text.count(old) != 1:
            raise CannotBeMade(f"{where}: {old!r} is in it {text.count(old)} times")
        text = text.replace(old, new)
    return text


def small_toml(checkpoint: str | pathlib.Path, **changes: object) -> str:
    """The default options with one bucket a phase, as tests/conftest.py has it, so that kernels are shared."""
    path = FIXTURES / checkpoint  # an absolute path stays as it is
    config = json.loads((path if path.suffix == ".json" else path / "config.json").read_text(encoding="utf-8"))
    config = config.get("text_config", config)
    family = config["model_type"].removesuffix("_text")
    values = {
        "prefill": "[64]",
        "decode": "[2]",
        "slots": 2,
        "page": 16,
        "ignore": "[]",
        "max_context": min(config["max_position_embeddings"], 4096),
    }
    text = (REPO / "models" / "defaults.toml").read_text(encoding="utf-8")
    if "[speculate]" in (REPO / "models" / f"{family}.toml").read_text(encoding="utf-8"):
        text = re.sub(r"^\[speculate\].*$", "[speculate]\nrows = 3", text, flags=re.M)
        values["rows"] = 1
    for key, value in (values | changes).items():
        text, n = re.subn(rf"^{key} = (\[[^]]*\]|\S+)", f"{key} = {value}", text, flags=re.M)
        assert n == 1, key
    return text


def edit_tensors(path: pathlib.Path, edits: list[str]) -> None:
    """drop NAME; rename NAME NEW; retype NAME DTYPE; reshape NAME D,D; copy NAME NEW; fill NAME HEX; cut NAME BYTES."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8 : 8 + length])
    meta = head.pop("__metadata__", None)
    tensors = {
        k: [v["dtype"], v["shape"], raw[8 + length + v["data_offsets"][0] : 8 + length + v["data_offsets"][1]]]
        for k, v in sorted(head.items(), key=lambda item: item[1]["data_offsets"])
    }
    for edit in edits:
        verb, name, *rest = edit.split()
        t = tensors[name]
        if verb in ("drop", "rename"):
            del tensors[name]
        if verb in ("rename", "copy"):
            tensors[rest[0]] = list(t)
        if verb == "retype":
            t[0] = rest[0]
        if verb == "reshape":
            t[1] = [int(d) for d in rest[0].split(",")]
        if verb == "fill":
            t[2] = bytes.fromhex(rest[0]) * (len(t[2]) * 2 // len(rest[0]))
        if verb == "cut":
            t[2] = t[2][: int(rest[0])]
    at, out, body = 0, {"__metadata__": meta} if meta else {}, b""
    for name, (dtype, shape, data) in tensors.items():
        out[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
        body += data
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def check_text(m: dict) -> None:
    """Raises CannotBeMade where what a mutant replaces in a file of the tree is not there exactly once."""
    for file, changes in ([(m["file"], m["change"])] if "change" in m else []) + list(m.get("text", {}).items()):
        if file == "MODEL.toml":
            text = small_toml(m["base"], **m.get("toml", {}))
        else:
            folder = {"model": f"tests/fixtures/{m.get('base')}", "source": ".", "tree": "."}.get(m["kind"])
            text = (REPO / (folder or "kernels/templates") / file).read_text(encoding="utf-8")
        replaced(text, changes, file)


class Workshop:
    def __init__(self, build: pathlib.Path, scratch: pathlib.Path):
        self.build = (REPO / build).resolve()
        self.scratch = scratch
        self.lock = threading.RLock()
        self.made: dict = {}
        self.busy: dict = {}
        self.n_plans = 0

    def once(self, key, make):
        """What make() gives, computed by the first who asks for this key."""
        with self.lock:
            mine = self.busy.setdefault(key, threading.RLock())
        with mine:
            if key not in self.made:
                self.made[key] = make()
            return self.made[key]

    def folder(self, name: str) -> pathlib.Path:
        path = self.scratch / name
        path.mkdir()
        return path

    @staticmethod
    def run(*words, cwd: pathlib.Path = REPO, text: str | None = None) -> tuple[int, str]:
        done = subprocess.run(
            [str(w) for w in words],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            input=text,
            stdin=None if text is not None else subprocess.DEVNULL,
        )
        return done.returncode, done.stdout + done.stderr

    def judge(self, m: dict) -> tuple[str | None, str]:
        """(the check that killed it, its words), or (None, why it survived); raises CannotBeMade."""
        check, mutated, sound = getattr(self, "kind_" + m["kind"])(m)
        code, words = sound
        if code:
            raise CannotBeMade(f"{check} refuses what is not mutated: {words[-600:]}")
        code, words = mutated
        if not code:
            return None, f"{check} accepts it"
        if not re.search(m["says"], words):
            return None, f"{check} says something else, exit {code}: {words[-600:]}"
        return check, words

    # Templates ---------------------------------------------------------------------------------------

    def templates(self, name: str, m: dict) -> pathlib.Path:
        folder = self.folder(name)
        real = REPO / "kernels" / "templates"
        for file in real.glob("*/*.cu*"):
            (folder / file.relative_to(real)).parent.mkdir(exist_ok=True)
            (folder / file.relative_to(real)).symlink_to(file)
        path = folder / m["file"]
        text = replaced(path.read_text(encoding="utf-8"), m["change"], m["file"])
        path.unlink()
        path.write_text(text, encoding="utf-8")
        return folder

    def kind_template(self, m: dict):
        of = m.get("of", m["file"])
        out = self.scratch / (m["name"] + ".c")
        gen = self.build / "kernelgen"
        real = REPO / "kernels" / "templates"
        folder = self.templates(m["name"], m)
        sound = self.once(
            ("kernelgen", of), lambda: self.run(gen, "-o", self.scratch / f"{pathlib.Path(of).name}.c", real / of)
        )
        return "kernelgen", self.run(gen, "-o", out, "-I", folder, folder / of), sound

    def kind_kernel(self, m: dict):
        """The mutated table is linked into kernel_test; without a GPU the text is only looked for."""
        folder = self.templates(m["name"], m)
        test = m.get("template", pathlib.Path(m["file"]).stem)
        words = ["--only", test, "--cases", m.get("cases", 40), "--jobs", 8, *m.get("words", [])]
        tool = ["compute-sanitizer", "--tool", m["sanitizer"], "--error-exitcode", "9"] if "sanitizer" in m else []
        program = self.with_table(m["name"], folder, "tests-gpu/kernel_test", sorted((REPO / "tests/gpu").glob("*.c")))
        sound = self.once(
            ("kernel_test", *map(str, words), *tool),
            lambda: self.run(*tool, self.build / "tests-gpu" / "kernel_test", *words),
        )
        check = f"compute-sanitizer {m['sanitizer']}" if tool else "kernel_test"
        return check, self.run(*tool, program, *words), sound

    # Checkpoints ------------------------------------------------------------------------------------------

    def checkpoint(self, m: dict, name: str) -> pathlib.Path:
        folder = self.folder(name)
        for file in (FIXTURES / m["base"]).iterdir():
            if file.name != "MODEL.toml":
                shutil.copy(file, folder)
        (folder / "MODEL.toml").write_text(small_toml(m["base"], **m.get("toml", {})), encoding="utf-8")
        return folder

    def compile(self, m: dict, folder: pathlib.Path, program: pathlib.Path | None = None):
        words = m.get("words", []) + ["--target", m.get("target", "sm_90a"), "--cache-dir", self.build / "kernel-cache"]
        stop = m.get("stop", "pick-kernels")
        words += ["-o", folder / "plan.bin"] if stop == "emit" else ["--dry-run", f"--stop-after={stop}"]
        return self.run(program or self.build / "atlasc", folder, "-q", *words)

    def kind_model(self, m: dict):
        sound = self.once(
            ("model", m["base"], str(m.get("toml")), m.get("target"), m.get("stop"), str(m.get("words"))),
            lambda: self.compile(m | {"words": []}, self.checkpoint(m, m["name"] + ".sound")),
        )
        folder = self.checkpoint(m, m["name"])
        for file, changes in m.get("text", {}).items():
            path = folder / file
            path.write_text(replaced(path.read_text(encoding="utf-8"), changes, file), encoding="utf-8")
        with open(folder / "MODEL.toml", "a", encoding="utf-8") as file:
            file.write(m.get("append", ""))
        if "tensors" in m:
            edit_tensors(folder / "model.safetensors", m["tensors"])
        for name in m.get("remove", []):
            (folder / name).unlink()
        return "atlasc", self.compile(m, folder), sound

    def kind_table(self, m: dict):
        """A checkpoint that is as it was, for a compiler whose kernel table is of the mutated templates."""
        sound = self.once(
            ("table", m["base"], str(m.get("toml")), m.get("stop")),
            lambda: self.compile(m, self.checkpoint(m, m["name"] + ".sound")),
        )
        program = self.with_table(
            m["name"], self.templates(m["name"] + ".templates", m), "compiler/main.c", [REPO / "compiler" / "main.c"]
        )
        return "atlasc", self.compile(m, self.checkpoint(m, m["name"]), program), sound

    # Plans ------------------------------------------------------------------------------------------------

    def plan(self, base: str, atlasc: pathlib.Path | None = None, *words: str) -> tuple[int, str, pathlib.Path]:
        """(exit code, words, path) of a fixture's plan, with kernels of the cache."""
        with self.lock:
            self.n_plans += 1
            name = f"{base}-{self.n_plans}"
        toml = self.scratch / f"{name}.toml"
        changes = {"rows": 3} if base in WITH_HEAD and "none" in words else {}
        toml.write_text(small_toml(base, **changes), encoding="utf-8")
        path = self.scratch / f"{name}.bin"
        code, said = self.run(
            atlasc or self.build / "atlasc",
            FIXTURES / base,
            "-o",
            path,
            "--model",
            toml,
            "-q",
            "--cache-dir",
            self.build / "kernel-cache",
            *words,
        )
        return code, said, path

    def base_plan(self, base: str, *words: str) -> pathlib.Path:
        code, said, path = self.once(("plan", base, *words), lambda: self.plan(base, None, *words))
        must(code, said)
        return path

    def look(self, by: str, plan: pathlib.Path) -> tuple[int, str]:
        if by == "reader":
            return self.run(self.build / "atlas", "info", plan)
        if by == "play":
            return self.run(self.build / "tests" / "plan_play", plan)
        if by == "cpu":
            return self.run(self.build / "atlas", "run", plan, "--device", "cpu", "-p", "And", "-n", 4, "-q")
        code, audit = self.run(self.build / "atlas", "audit", plan, "--json")
        return (code, audit) if code else self.run(sys.executable, REPO / "tests/audit/recheck.py", text=audit)

    def kind_plan(self, m: dict):
        by = m.get("by", "reader")
        plan = self.base_plan(m.get("base", "qwen3"), *m.get("words", []))

        def sealed(name, *edits):
            path = self.scratch / f"{name}.bin"
            code, said = self.run(self.build / "tests" / "plan_edit", plan, path, *edits)
            must(code, said)
            return path

        sound = self.once(("look", by, plan), lambda: self.look(by, sealed(f"{plan.stem}.{by}")))
        check = {"reader": "plan checker", "play": "plan_play", "recheck": "recheck.py", "cpu": "reference device"}[by]
        return check, self.look(by, sealed(m["name"], *m["edits"])), sound

    # Sources ------------------------------------------------------------------------------------------------

    def flags(self, link: bool) -> list[str]:
        def ask():
            done = subprocess.run(
                ["make", "-s", f"BUILD={self.build}", "flags", *(["LINK=1"] if link else [])],
                cwd=REPO,
                env=apart_from_make(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            must(done.returncode, done.stderr)
            return done.stdout.split()

        return self.once(("flags", link), ask)

    def compiled(self, name: str, source: pathlib.Path, *words: str) -> pathlib.Path:
        out = self.scratch / f"{name}.o"
        code, said = self.run("cc", *self.flags(False), "-w", "-O1", *words, "-c", "-o", out, source)
        must(code, said)
        return out

    def linked(self, name: str, *objects: pathlib.Path) -> pathlib.Path:
        """A program in which these objects come before all others of the build."""
        flags = self.flags(True)
        at = flags.index("LIBS")
        out = self.scratch / name
        libs = [f.replace("$ORIGIN", str(self.build)) for f in flags[at + 1 :]]
        code, said = self.run("cc", *flags[:at], "-o", out, *objects, self.build / "obj" / "tests.a", *libs)
        must(code, said)
        return out

    def with_table(self, name: str, templates: pathlib.Path, program: str, sources) -> pathlib.Path:
        c = self.scratch / f"{name}.table.c"
        code, said = self.run(self.build / "kernelgen", "-o", c, "-I", templates, *sorted(templates.glob("*/*.cu")))
        must(code, said)
        objects = [self.build / "obj" / s.relative_to(REPO).with_suffix(".o") for s in sources]
        return self.linked(f"{name}.{pathlib.Path(program).name}", *objects, self.compiled(f"{name}.table", c))

    def mutated_object(self, m: dict) -> pathlib.Path:
        source = REPO / m["file"]
        path = self.scratch / f"{m['name']}.{source.suffix[1:]}"
        path.write_text(replaced(source.read_text(encoding="utf-8"), m["change"], m["file"]), encoding="utf-8")
        return self.compiled(m["name"], path, "-I", str(source.parent))

    MAINS = {"atlasc": "compiler/main.o", "atlas": "runtime/cli/atlas_main.o"}

    def program(self, name: str, obj: pathlib.Path | None, which: str) -> pathlib.Path:
        """atlasc, atlas or a test program, of the build or with the mutated object in it."""
        if not obj:
            return self.build / (which if which in self.MAINS else f"tests/{which}")
        main = self.MAINS.get(which)
        if not main:
            main = next(p.relative_to(REPO) for p in REPO.glob(f"tests/*/{which}.c")).with_suffix(".o")
        return self.linked(f"{name}.{which}", obj, self.build / "obj" / main)

    def kind_source(self, m: dict):
        kind, _, of = m["check"].partition(":")
        check = getattr(self, "check_" + kind)
        sound = self.once(("source", m["check"]), lambda: check(re.sub(r"\W", "_", m["check"]), None, of))
        obj = self.mutated_object(m)
        return m["check"], check(m["name"], obj, of), sound

    def check_unit(self, name: str, obj, of: str):
        program = self.program(name, obj, of)
        return self.until_a_failure(program) if obj else self.run(program)

    @staticmethod
    def until_a_failure(program: pathlib.Path) -> tuple[int, str]:
        """(exit code, words) of a unit program that is stopped, as failed, after its first test that fails: the
        mutant is killed, and the other tests would only take time."""
        words = ""
        with subprocess.Popen(
            [program],
            cwd=REPO,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            limit = threading.Timer(600, process.kill)
            limit.start()
            for line in process.stdout:
                words += line
                if line.startswith("[  FAILED  ] "):
                    process.kill()
                    break
            code = process.wait()
            limit.cancel()
        return code, words

    def check_compile(self, name: str, obj, of: str):
        """The compiler looks at each level it makes, and the reader at the plan."""
        code, said, plan = self.plan(of, self.program(name, obj, "atlasc"))
        return (code, said) if code else self.look("reader", plan)

    def check_play(self, name: str, obj, of: str):
        """What the compiler makes is played by the fake GPU of the build that is not mutated."""
        code, said, plan = self.plan(of, self.program(name, obj, "atlasc"))
        return (code, said) if code else self.look("play", plan)

    def goldens(self, atlas: pathlib.Path, plan: pathlib.Path, of: str, name: str):
        import numpy as np
        from safetensors import safe_open
        from safetensors.numpy import load_file

        out = self.scratch / f"{name}.safetensors"
        with safe_open(FIXTURES / of / "golden.safetensors", "numpy") as f:
            ids, want = f.get_tensor("p0.input_ids").reshape(-1), f.get_tensor("p0.logits")
        code, said = self.run(
            atlas, "dump", plan, "--tokens", ",".join(map(str, ids)), "--device", "cpu", "-o", out, "-q"
        )
        if code:
            return code, said
        got = load_file(out)["logits"][-len(want) :]
        error = float(np.max(np.abs(got.astype(np.float64) - want)) / np.max(np.abs(want)))
        return int(not error <= TOLERANCE), f"logits are off by {error:.1e} of the largest"

    def check_golden(self, name: str, obj, of: str):
        """The reference device against logits of transformers."""
        plan = self.base_plan(of, "--target", "none")
        return self.goldens(self.program(name, obj, "atlas"), plan, of, name)

    def check_graph(self, name: str, obj, of: str):
        """The same, of a graph that a mutated compiler has built."""
        code, said, plan = self.plan(of, self.program(name, obj, "atlasc"), "--target", "none")
        return (code, said) if code else self.goldens(self.build / "atlas", plan, of, name)

    def check_answers(self, name: str, obj, of: str):
        """Prompts one behind the other in the same slots: equal prompts, equal answers."""
        fixture, _, which = of.partition("@")
        prompts = self.scratch / f"{name}.prompts"
        prompts.write_text("And God said\nIn the beginning\n" * 2, encoding="utf-8")
        program = self.program(name, obj, which)
        code, said, plan = (
            self.plan(fixture, program, "--target", "none")
            if which == "atlasc"
            else (0, "", self.base_plan(fixture, "--target", "none"))
        )
        if code:
            return code, said
        code, said = self.run(
            program if which == "atlas" else self.build / "atlas",
            "run",
            plan,
            "-f",
            prompts,
            "-n",
            8,
            "--temperature",
            0,
            "--device",
            "cpu",
            "--json",
            "-q",
        )
        if code:
            return code, said
        answers = [r["tokens"] for r in json.loads(said)["results"]]
        return int(answers[:2] != answers[2:]), f"answers to equal prompts differ: {answers}"

    def check_twice(self, name: str, obj, of: str):
        """The same inputs give the same bytes, in one thread and in two."""
        atlasc = self.program(name, obj, "atlasc")
        plans = [self.plan(of, atlasc, "-j", jobs) for jobs in ("1", "2")]
        for code, said, _ in plans:
            if code:
                return code, said
        return int(plans[0][2].read_bytes() != plans[1][2].read_bytes()), "two compiles give different bytes"

    def check_pytest(self, name: str, obj, of: str):
        """One test of ours, on a build folder in which the programs it needs are the mutated ones."""
        test, _, programs = of.partition("@")
        folder = self.folder(f"{name}.build")
        for entry in self.build.iterdir():
            (folder / entry.name).symlink_to(entry)
        for which in programs.split(",") if obj else []:
            made = self.program(name, obj, which)
            if which not in self.MAINS:
                if (folder / "tests").is_symlink():
                    (folder / "tests").unlink()
                    (folder / "tests").mkdir()
                    for entry in (self.build / "tests").iterdir():
                        (folder / "tests" / entry.name).symlink_to(entry)
            path = folder / (which if which in self.MAINS else f"tests/{which}")
            path.unlink()
            path.symlink_to(made)
        return self.run(
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--no-header",
            "-p",
            "no:cacheprovider",
            test,
            "--build-dir",
            folder,
        )

    # The tree ------------------------------------------------------------------------------------------------

    def kind_tree(self, m: dict):
        folder = self.folder(m["name"])
        for room in ROOMS:
            shutil.copytree(
                REPO / room,
                folder / room,
                copy_function=lambda s, d: pathlib.Path(d).symlink_to(s),
                ignore=lambda d, names: [n for n in names if n == "fixtures" or n == "__pycache__"],
            )
        for name in ("Makefile", "README.md"):
            (folder / name).symlink_to(REPO / name)
        path = folder / m["file"]
        text = replaced(path.read_text(encoding="utf-8"), m["change"], m["file"])
        path.unlink()
        path.write_text(text, encoding="utf-8")
        script = f"scripts/check_{m['check']}.sh"
        build = self.build
        if m["check"] == "globals":  # looks at objects
            build = self.folder(m["name"] + ".build")
            objects = build / "obj" / m["file"].split("/")[0]
            objects.mkdir(parents=True)
            shutil.copy(self.mutated_object(m), objects / "mutant.o")
        sound = self.once(("tree", m["check"]), lambda: self.run("bash", REPO / script, self.build))
        return script, self.run("bash", folder / script, build, cwd=folder), sound


def judge(shop: Workshop, m: dict) -> tuple[str | None, str]:
    return shop.judge(m)
