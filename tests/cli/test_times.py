"""atlasc times: which templates lack times, of files made up beside the build's own templates."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib

import pytest

CARD = '[card]\ntarget = "sm_90a"\nname = "Any Card"\ndriver = "1"\n'


def times_of(text: str) -> dict[tuple[str, str, str], tuple[float, float, str]]:
    """All times of a file by template, constants and tunables."""
    return {
        (kernel["template"], kernel["constants"], tunables): tuple(value)
        for kernel in tomllib.loads(text).get("kernel", [])
        for tunables, value in kernel.items()
        if tunables not in ("template", "constants")
    }


def file_of(times: dict[tuple[str, str, str], tuple[float, float, str]]) -> str:
    return CARD + "".join(
        f'[[kernel]]\ntemplate = "{name}"\nconstants = "{constants}"\n"{tunables}" = [{us}, {spread}, "{key}"]\n'
        for (name, constants, tunables), (us, spread, key) in times.items()
    )


@pytest.fixture(scope="module")
def built_in(atlasc, repo):
    """Times of a few templates on one card that are of these templates as they are, with their keys."""
    listed = json.loads(atlasc("times", repo / "kernels/tuning/sm_90a.h100.toml", "--json").stdout)
    current = {(t["template"], t["constants"], t["tunables"]): t["key"] for t in listed["files"][0]["times"]}
    names = ("attn_wgmma", "gemv_norm", "stream_norm", "rope_write", "zero_slots")
    file = times_of((repo / "kernels/tuning/sm_90a.h100.toml").read_text())
    return {at: (*value[:2], current[at]) for at, value in file.items() if at[0] in names}


@pytest.fixture(scope="module")
def serving(atlasc):
    return [t["name"] for t in json.loads(atlasc("kernels", "--json").stdout)["kernels"] if "sm_90a" in t["targets"]]


def test_current_changed_missing_and_gone(atlasc, built_in, serving, tmp_path):
    times = dict(built_in)
    changed = [at for at in times if at[0] == "stream_norm"]
    for at in changed:
        times[at] = (*times[at][:2], "0" * 16)
    one = next(at for at in times if at[0] == "rope_write")
    times[one] = (*times[one][:2], "1" * 16)
    times[("gone", "K=1", "")] = (1, 0, "2" * 16)
    file = tmp_path / "times.toml"
    file.write_text(file_of(times))
    done = atlasc("times", file)
    assert (done.returncode, done.stderr) == (0, "")
    n_rope = sum(at[0] == "rope_write" for at in times)
    missing = [name for name in serving if name not in {at[0] for at in times}]
    assert done.stdout.splitlines() == [
        f"{file} (Any Card): {len(serving)} templates serve sm_90a; {len(times) - len(changed) - 2} of {len(times)} times "
        "are of them as they are",
        f"  2 changed after they were timed: rope_write (1 of {n_rope} times) stream_norm",
        f"  {len(missing)} never timed on this card: {' '.join(missing)}",
        "  1 timed, but no longer there for this target: gone",
    ]
    [listed] = json.loads(atlasc("times", file, "--json").stdout)["files"]
    assert {(t["template"], t["constants"], t["tunables"]) for t in listed["times"] if not t["is_current"]} == {
        *changed,
        one,
        ("gone", "K=1", ""),
    }


def test_tunables_in_another_order(atlasc, built_in, tmp_path):
    """A compile looks times up by that text, so such a time is not one of the template as it is."""
    turned = {
        (name, constants, " ".join(reversed(tunables.split()))): value
        for (name, constants, tunables), value in built_in.items()
        if name in ("attn_wgmma", "zero_slots")
    }
    file = tmp_path / "times.toml"
    file.write_text(file_of(turned))
    [listed] = json.loads(atlasc("times", file, "--json").stdout)["files"]
    for t in listed["times"]:
        assert t["is_current"] == (t["template"] == "zero_slots"), t
        assert t["tunables_today"] == " ".join(reversed(t["tunables"].split())), t
    words = ["tests/gpu/shapes/llama-3.1-8b.json", "--random-weights", "--dry-run", "--tuning", file]
    assert re.findall(r"note\[A0704\]: times of (\w+) ", atlasc(*words).stderr) == ["attn_wgmma"]


def test_constants_that_no_compile_looks_for(atlasc, repo, tmp_path):
    """Times without an attribute that kernels have now are never found, whatever their key says."""
    times = times_of((repo / "kernels/tuning/sm_90a.h100.toml").read_text())
    former = {
        (a, b.replace(" V_IS_K=0", ""), c): v for (a, b, c), v in times.items() if a in ("attn_step", "stream_norm")
    }
    file = tmp_path / "times.toml"
    file.write_text(file_of(former))
    for t in json.loads(atlasc("times", file, "--json").stdout)["files"][0]["times"]:
        assert t["is_current"] == (t["template"] == "stream_norm"), t
    for built_in in (repo / "kernels/tuning").glob("*.toml"):
        keys = {at: value[2] for at, value in times_of(built_in.read_text()).items()}
        for t in json.loads(atlasc("times", built_in, "--json").stdout)["files"][0]["times"]:
            is_same = keys[t["template"], t["constants"], t["tunables"]] == t["key"]
            assert t["is_current"] == (is_same and t["tunables_today"] == t["tunables"]), t


def test_all_cards(atlasc, repo):
    """Without a file: each built-in one, and the targets that have none."""
    done = atlasc("times")
    assert (done.returncode, done.stderr) == (0, "")
    names = sorted(path.name for path in (repo / "kernels/tuning").glob("*.toml"))
    assert re.findall(r"^kernels/tuning/(\S+) \(", done.stdout, re.M) == names
    targets = {name.split(".")[0] for name in names}
    untimed = re.findall(r"^(\w+): no card was timed$", done.stdout, re.M)
    assert untimed and not targets & set(untimed)
    assert json.loads(atlasc("times", "--json").stdout)["untimed_targets"] == untimed


def test_agrees_with_the_notes_of_a_compile(atlasc, repo, tmp_path):
    """What it calls changed is what a compile by the same times notes as A0704, where the shape at hand uses it."""
    built_in = repo / "kernels/tuning/sm_90a.h100.toml"
    listed = json.loads(atlasc("times", built_in, "--json").stdout)["files"][0]["times"]
    file = tmp_path / "times.toml"
    for names in ([], ["embed_next", "attn_step", "stream_norm"]):
        times = times_of(built_in.read_text())
        for t in listed:
            at = (t["template"], t["constants"], t["tunables"])
            times[at] = (*times[at][:2], "0" * 16 if at[0] in names else t["key"])
        file.write_text(file_of(times))
        changed = re.search(r"^  \d+ changed after they were timed:? ?(.*)$", atlasc("times", file).stdout, re.M)[1]
        noted = atlasc(
            "tests/gpu/shapes/llama-3.2-1b.json",
            "--random-weights",
            "--stop-after",
            "pick-kernels",
            "--tuning",
            file,
            "-o",
            tmp_path / "plan.bin",
        ).stderr
        assert sorted(re.findall(r"note\[A0704\]: times of (\w+) were", noted)) == changed.split()
        assert sorted(names) == changed.split()


@pytest.mark.parametrize("renamed", ["", " CHAIN=0"])
def test_tunables_that_a_template_did_not_have(atlasc, repo, tmp_path, renamed):
    """Times without one, or with one of another name in its place, are of another version of the template, and named
    so."""
    times = times_of((repo / "kernels/tuning/sm_90a.h100.toml").read_text())
    file = tmp_path / "times.toml"
    former = {(a, b, c.replace(" RUN=0", renamed)): v for (a, b, c), v in times.items() if a == "attn_step"}
    file.write_text(file_of(former))
    assert re.search(r"^  1 changed after they were timed: attn_step$", atlasc("times", file).stdout, re.M)
    listed = json.loads(atlasc("times", file, "--json").stdout)["files"][0]["times"]
    assert all(not t["is_current"] for t in listed)
    if not renamed:
        assert all(t["tunables_today"] == t["tunables"] + " RUN=0" for t in listed)
    words = ("--random-weights", "--stop-after", "pick-kernels", "--tuning", file, "-o", tmp_path / "plan.bin")
    noted = atlasc("tests/gpu/shapes/llama-3.2-1b.json", *words).stderr
    assert noted.count("note[A0704]: times of attn_step were measured with another version of it and are not used") == 1


def test_keys(atlasc, built_in, tmp_path):
    """The key is a hash of the code's hash and of the launch's values, which follow from the contract by hand."""
    code = {k["name"]: k["code_sha256"] for k in json.loads(atlasc("kernels", "--json").stdout)["kernels"]}
    file = tmp_path / "times.toml"
    file.write_text(file_of(built_in))
    [listed] = json.loads(atlasc("times", file, "--json").stdout)["files"]
    seen = set()
    for t in listed["times"]:
        assert t["key"] == hashlib.sha256(bytes.fromhex(code[t["template"]]) + t["launch"].encode()).hexdigest()[:16]
        at = dict(word.split("=") for word in (t["constants"] + " " + t["tunables"]).split())
        if t["template"] == "zero_slots":
            blocks = -(-int(at["N"]) // 8192)
            wanted = [f"grid {room}\ngrid {blocks}\ngrid 1\nblock 256\nsmem 0\n" for room in (1, 4096)]
        elif t["template"] == "stream_norm" and at["WT"] == "bf16":
            n, tiles, cols, depth = (int(at[name]) for name in ("N", "TILES", "COLS", "DEPTH"))
            smem = 8 * depth * (cols * tiles * 16 * 2 + cols * {"f32": 4}.get(at["NT"], 2))
            wanted = [f"grid {-(-n // (16 * tiles))}\ngrid 1\ngrid 1\nblock 256\nsmem {smem}\n"] * 2
        else:
            continue
        assert t["launch"] == "".join(wanted)
        seen.add(t["template"])
    assert seen == {"zero_slots", "stream_norm"}


@pytest.mark.parametrize(
    "text, code, message",
    [
        ("[card\n", 4, ":1:1: error[A0703]: unknown table: there are [card] and [[kernel]]"),
        (
            CARD + "[templates]\n",
            4,
            ":5:1: error[A0703]: [templates]: times by whole files, of an older version: measure again",
        ),
        (CARD.replace("sm_90a", "sm_91"), 4, ": error[A0703]: times of sm_91, which is not a target"),
    ],
)
def test_bad_files(atlasc, tmp_path, text, code, message):
    file = tmp_path / "times.toml"
    file.write_text(text)
    done = atlasc("times", file)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"{file}{message}\n")


def test_usage(atlasc, tmp_path):
    done = atlasc("times", tmp_path / "none.toml")
    assert done.returncode == 4 and done.stderr.startswith(f"{tmp_path}/none.toml: error[A0102]: ")
    for words, message in (
        (["times", "--machine-code"], "--machine-code needs --json"),
        (["times", "--slots", "4"], "--slots is not an option of atlasc times"),
        (["tests/fixtures/llama", "--machine-code"], "--machine-code is an option of atlasc times only"),
    ):
        done = atlasc(*words)
        assert (done.returncode, done.stderr) == (2, f"atlasc: error[A0101]: {message}\n")
