"""What asks for a certificate, on a machine without a GPU: certificates are made up here, in the form that the header
artifacts/certificate.h describes, for a plan's own root hash and phases. Measuring is tested in tests/unit/test_certify.c."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

LAYER = '{"dtype":"bf16","cosine":0.9999,"median":0.99995,"rms":0.005,"max":0.006}'
OP = (
    '{{"phase":"{phase}","op":"linear_residual","kernel":"k","result":"z","stored":"bf16","dtype":"bf16","launches":1,'
    '"values":64,"layer":1,"cosine":1,"rms":0.001,"max":{max}}}'
)


def certificate(root, phases, layers, *, max_error="0.003", verdict="true"):
    ops = ",\n".join(OP.format(phase=p, max=max_error) for p in phases)
    return (
        f'{{"atlas_certificate":2,\n"root":"{root}",\n"target":"sm_90a",\n"capability":[9,0],\n"device":"a GPU",\n'
        f'"driver":13000,\n"atlas":"0.1.0",\n"tokens":[1,2],\n"phases":[{",".join(f"{chr(34)}{p}{chr(34)}" for p in phases)}],\n'
        f'"layers":[\n{",{0}".format(chr(10)).join([LAYER] * layers)}],\n"ops":[\n{ops}],\n"certified":{verdict},\n'
        '"key":"",\n"signature":""}\n'
    )


@pytest.fixture(scope="module")
def plan(plan_of, atlas, tmp_path_factory):
    """A copy of a plan, its root hash, its phases."""
    copy = tmp_path_factory.mktemp("certificate") / "plan.bin"
    shutil.copy(plan_of("llama-trained"), copy)
    root = json.loads(atlas("info", copy, "--json").stdout)["root"]
    audit = json.loads(atlas("audit", copy, "--json").stdout)
    phases = [f"{p['phase']}[{p['rows']}]" for p in audit["targets"][0]["phases"] if p["phase"] != "probe"]
    return copy, root, phases


def run(atlas, plan):
    got = atlas("run", plan, "--tokens", "1,2", "-n", "1", "--device", "cpu", "--require-certified", "-q")
    assert got.returncode == 6 and got.stdout == ""
    return got.stderr.splitlines()[-1]


def test_without_one(atlas, plan):
    path = plan[0]
    assert run(atlas, path) == (
        f"atlas run: error: --require-certified: there is no {path}.cert: atlas verify --certify makes one"
    )


@pytest.mark.parametrize(
    "change,message",
    [
        ({"root": "0" * 64}, "it belongs to another plan: the root hashes differ"),
        ({"phases": ["prefill[64]"]}, "decode[1] was not measured"),
        ({"layers": 2}, "it has 1 layers and logits, the plan"),
        ({"max_error": "0.03", "verdict": "false"}, "layer 1: z of linear_residual by k in "),
        ({"max_error": "0.03"}, "not in the canonical form, or its verdict is not that of its figures"),
        ({"max_error": "0.0030"}, "not in the canonical form"),
    ],
)
def test_one_that_does_not_hold(atlas, plan, change, message):
    path, root, phases = plan
    words = {"root": root, "phases": phases, "layers": 3, **change}
    (path.parent / "plan.bin.cert").write_text(certificate(**words))
    assert message in run(atlas, path)
    (path.parent / "plan.bin.cert").unlink()


@pytest.mark.parametrize("digit", [0, 1, 2, 31, 32, 62, 63])
def test_of_another_plan(atlas, plan, tmp_path, digit):
    """Whose root differs in one digit, wherever."""
    path, root, phases = plan
    policy = tmp_path / "policy.toml"
    policy.write_text("[plan]\ncertificate = true\n")
    other = root[:digit] + f"{int(root[digit], 16) ^ 1:x}" + root[digit + 1 :]
    layers = json.loads(atlas("info", path, "--json").stdout)["n_layers"] + 1
    (path.parent / "plan.bin.cert").write_text(certificate(other, phases, layers))
    assert "it belongs to another plan: the root hashes differ" in run(atlas, path)
    checked = atlas("audit", path, "--check", policy)
    (path.parent / "plan.bin.cert").unlink()
    assert checked.returncode == 1 and "it belongs to another plan" in checked.stdout, checked.stdout


def public_key(private):
    return private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def test_signed_by_a_similar_key(build_dir, atlas, atlasc, kernel_cache, tmp_path):
    """The plan is signed by two keys that begin with the same byte, the certificate by one: it is not the other's."""
    ann = near = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
    for i in range(1, 1 << 16):
        near = ed25519.Ed25519PrivateKey.from_private_bytes(i.to_bytes(32, "big"))
        if public_key(near)[0] == public_key(ann)[0]:
            break
    for name, key in (("ann", ann), ("near", near)):
        (tmp_path / f"{name}.pem").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        (tmp_path / f"{name}.pub").write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
    path, policy = tmp_path / "plan.bin", tmp_path / "policy.toml"
    assert atlasc("tests/fixtures/llama", "-o", path, "-q", "--cache-dir", kernel_cache).returncode == 0
    for name in "ann", "near":
        assert atlas("sign", path, "--key", tmp_path / f"{name}.pem").returncode == 0
    assert len(json.loads(atlas("info", path, "--json").stdout)["signatures"]) == 2
    made = subprocess.run(
        [build_dir / "atlas", "verify", path, "--certify", "--sign", tmp_path / "ann.pem", "-q"],
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": str(build_dir / "tests-gpu" / "fake"), "FAKE_CUDA_CC": "9.0"},
    )
    assert made.returncode == 0, made.stderr
    policy.write_text("[plan]\ncertificate = true\n")
    assert atlas("audit", path, "--check", policy, "--trust", tmp_path / "ann.pub").returncode == 0
    checked = atlas("audit", path, "--check", policy, "--trust", tmp_path / "near.pub")
    assert checked.returncode == 1 and "signed by another key than those of --trust" in checked.stdout, checked.stdout


def test_one_that_holds(atlas, plan, tmp_path):
    """On the reference device it is of no use, and a policy is content with it."""
    path, root, phases = plan
    policy = tmp_path / "policy.toml"
    policy.write_text("[plan]\ncertificate = true\n")
    assert atlas("audit", path, "--check", policy).returncode == 1
    layers = json.loads(atlas("info", path, "--json").stdout)["n_layers"] + 1
    (path.parent / "plan.bin.cert").write_text(certificate(root, phases, layers))
    assert (
        run(atlas, path) == "atlas run: error: --require-certified: certificates are for GPUs, and this is device cpu"
    )
    checked = atlas("audit", path, "--check", policy)
    assert (checked.returncode, checked.stderr) == (0, "")
    (path.parent / "plan.bin.cert").unlink()


@pytest.mark.parametrize(
    "words,message",
    [
        (
            ["--certify", "--device", "cpu"],
            "--certify compares a GPU with the reference device: leave --device cpu out",
        ),
        (
            ["--certify", "--against", "b"],
            "--certify compares with the reference device by the tolerances of dtypes: give it "
            "without --against, --each-layer and --tolerance",
        ),
        (["--sign", "key.pem", "-p", "x"], "--sign needs --certify"),
    ],
)
def test_mistakes(atlas, words, message):
    got = atlas("verify", "plan.bin", *words)
    assert (got.returncode, got.stdout, got.stderr) == (2, "", f"atlas verify: error: {message}\n")
