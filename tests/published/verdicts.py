"""The published configs beside this file and the table of what atlasc is to say of each."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import subprocess
import tomllib

FOLDER = pathlib.Path(__file__).resolve().parent
TARGET = "sm_90a"


@dataclasses.dataclass
class Entry:
    """A row of table.toml with its files: {"config.json": its value, ...}."""

    name: str
    source: str
    verdict: str
    partial: str = ""
    says: str = ""
    missing: str = ""
    files: dict = dataclasses.field(default_factory=dict)

    @property
    def config(self) -> dict:
        return self.files["config.json"]

    @property
    def model_type(self) -> str:
        return self.config["model_type"]

    @property
    def is_quantised(self) -> bool:
        return "quantization_config" in self.config or "hf_quant_config.json" in self.files

    @property
    def format(self) -> str:
        """How the weights are stored, in the words of the files."""
        quant = self.config.get("quantization_config") or self.config.get("text_config", {}).get("quantization_config")
        inner = (self.files.get("hf_quant_config.json") or {}).get("quantization", {})
        if not quant and not inner:
            return self.config.get("dtype") or self.config.get("torch_dtype") or "bfloat16"
        quant = quant or {}
        algo = quant.get("quant_algo") or inner.get("quant_algo")
        method = quant.get("quant_method") or ("modelopt" if algo else "?")
        if method == "fp8" and not algo:
            return "fp8 by blocks" if quant.get("weight_block_size") else "fp8 by tensor"
        return f"{method} {algo or quant.get('format', '')}".strip()

    def write(self, folder: pathlib.Path) -> None:
        for file, content in self.files.items():
            (folder / file).write_text(json.dumps(content, indent=2), encoding="utf-8")


@dataclasses.dataclass
class Judgement:
    """What atlasc said: "accepted", or the code of the error that counts; `why` is that line."""

    verdict: str
    why: str
    right: bool
    stdout: str
    stderr: str


def entries() -> list[Entry]:
    """Every row of the table, in its order."""
    table = tomllib.loads((FOLDER / "table.toml").read_text(encoding="utf-8"))
    return [
        Entry(name, files=json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")), **row)
        for name, row in table.items()
    ]


def judge(atlasc: pathlib.Path, entry: Entry, folder: pathlib.Path, *options: str) -> Judgement:
    """Reads the config, builds its graph with weights that are made up, and picks a kernel for every op of it; nothing
    is compiled and no plan is written. `folder` is empty and takes the files."""
    entry.write(folder)
    run = subprocess.run(
        [atlasc, folder, "--random-weights", "--estimate", "--json", "--target", TARGET, *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    errors = [(m[2], m[3]) for m in re.finditer(r"^(.*?)error\[(A\d{4})\]: (.*)$", run.stderr, re.M)]
    if run.returncode == 0:
        return Judgement("accepted", "", entry.verdict == "accepted", run.stdout, run.stderr)
    named = [e for e in errors if e[0] == entry.verdict and entry.says in e[1]]
    code, why = (named or errors or [(f"exit {run.returncode}", run.stderr.strip()[-200:])])[0]
    return Judgement(code, why, bool(named), run.stdout, run.stderr)
