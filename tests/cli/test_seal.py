"""The seal of a plan: its hash tree against plan_file.py, its signatures against `cryptography`, and what the
commands refuse. Every byte of a file is flipped by tests/unit/test_seal.c."""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from plan_file import check, entries, signatures, signed_message, take_apart

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
MODEL = "llama"
PEM, DER, PKCS8 = serialization.Encoding.PEM, serialization.Encoding.DER, serialization.PrivateFormat.PKCS8
SPKI, PLAIN = serialization.PublicFormat.SubjectPublicKeyInfo, serialization.NoEncryption()


class Key:
    """A key pair and its files; the seed is the name."""

    def __init__(self, folder, name):
        self.private = ed25519.Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
        self.public = self.private.public_key()
        self.raw = self.public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.id = hashlib.sha256(self.public.public_bytes(DER, SPKI)).hexdigest()
        self.pem, self.pub = folder / f"{name}.pem", folder / f"{name}.pub"
        self.pem.write_bytes(self.private.private_bytes(PEM, PKCS8, PLAIN))
        self.pub.write_bytes(self.public.public_bytes(PEM, SPKI))


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return [Key(tmp_path_factory.mktemp("keys"), name) for name in ("ann", "bob", "eve")]


@pytest.fixture(scope="module")
def plans(small_plan_of, keys):
    """Unsigned, and signed by ann and bob."""
    return small_plan_of(MODEL), small_plan_of(MODEL, "--sign", keys[1].pem, "--sign", keys[0].pem)


# The tree -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [MODEL, "qwen3_moe"])
def test_tree(small_plan_of, model):
    """Whatever the file holds hangs in the tree as specified, and so do weights that stay in the checkpoint."""
    embedded, by_reference = small_plan_of(model).read_bytes(), small_plan_of(model, "--weights", "ref").read_bytes()
    check(embedded)
    check(by_reference, {f.name: f.read_bytes() for f in (FIXTURES / model).glob("*.safetensors")})
    assert take_apart(embedded)["leaves"] == take_apart(by_reference)["leaves"]


def test_several_leaves(small_plan_of):
    data = small_plan_of("llama-trained").read_bytes()
    assert max(s["bytes"] for s in entries(data)) > 1 << 20 and len(take_apart(data)["leaves"]) > 0
    check(data)


# Signatures ---------------------------------------------------------------------------------------------------------


def test_signatures(atlas, plans, keys):
    bare, signed = plans[0].read_bytes(), plans[1].read_bytes()
    check(signed)
    assert signatures(bare) == [] and signed[: len(bare) - 16] == bare[:-16]
    found = dict(signatures(signed))
    assert list(found) == sorted(k.raw for k in keys[:2])
    for key in keys[:2]:
        key.public.verify(found[key.raw], signed_message(signed[16:48]))  # raises when it does not hold
        assert found[key.raw] == key.private.sign(signed_message(signed[16:48]))
    info = json.loads(atlas("info", plans[1], "--json").stdout)
    by_key = [k.id for k in sorted(keys[:2], key=lambda k: k.raw)]
    assert info["signatures"] == by_key
    assert f"signed by    {by_key[0]}\n             {by_key[1]}\n" in atlas("info", plans[1]).stdout


def test_similar_keys(atlas, atlasc, plans, keys, tmp_path):
    """Two keys that begin with the same byte are two keys, for both commands."""
    near = next(k for k in (Key(tmp_path, f"near{i}") for i in range(1 << 16)) if k.raw[0] == keys[0].raw[0])
    out, both = tmp_path / "plan.bin", tmp_path / "both.bin"
    assert atlas("sign", plans[0], "--key", keys[0].pem, "-o", out).returncode == 0
    assert atlas("sign", out, "--key", near.pem).returncode == 0
    assert [key for key, _ in signatures(out.read_bytes())] == sorted([keys[0].raw, near.raw])
    done = atlasc(FIXTURES / MODEL, "--target", "none", "-q", "-o", both, "--sign", keys[0].pem, "--sign", near.pem)
    assert done.returncode == 0, done.stderr
    assert [key for key, _ in signatures(both.read_bytes())] == sorted([keys[0].raw, near.raw])


def test_as_many_as_there_may_be(atlas, plans, tmp_path):
    out = tmp_path / "plan.bin"
    shutil.copy(plans[0], out)
    for i in range(17):
        run = atlas("sign", out, "--key", Key(tmp_path, f"signer{i}").pem)
        assert run.returncode == (0 if i < 16 else 4), run.stderr
    assert run.stderr == f"atlas sign: error: {out}: has 16 signatures, the maximum\n"
    assert len(signatures(out.read_bytes())) == 16 and atlas("info", out).returncode == 0


def test_sign_afterwards(atlas, plans, keys, tmp_path):
    """Signing a plan that exists gives the bytes of signing it at once; twice is once."""
    out, again = tmp_path / "signed.bin", tmp_path / "again.bin"
    assert atlas("sign", plans[0], "--key", keys[0].pem, "-o", out).returncode == 0
    assert atlas("sign", out, "--key", keys[1].pem).returncode == 0
    assert out.read_bytes() == plans[1].read_bytes()
    assert atlas("sign", out, "--key", keys[0].pem, "-o", again, "--trust", keys[1].pub).returncode == 0
    assert again.read_bytes() == out.read_bytes()
    damaged = bytearray(plans[0].read_bytes())
    damaged[-5000] ^= 1
    out.write_bytes(damaged)
    run = atlas("sign", out, "--key", keys[0].pem)
    assert run.returncode == 6 and "error[INTEGRITY]" in run.stderr and out.read_bytes() == damaged
    run = atlas("sign", plans[0])
    assert (run.returncode, run.stderr) == (2, "atlas sign: error: name a private key: atlas sign PLAN --key PEM\n")
    run = atlas("sign", plans[0], "--key", keys[0].pub, "-o", out)
    assert (run.returncode, run.stderr) == (
        4,
        f"atlas sign: error: {keys[0].pub}: holds a public key: expected the private one\n",
    )


VERBS = [
    ["run", "--tokens", "1,2,3", "-n", "2", "--device", "cpu", "-q"],
    ["info"],
    ["audit"],
    ["verify", "--tokens", "1,2"],
    ["dump", "--tokens", "1,2", "-o", "out"],
    ["perplexity", "-f", "text"],
    ["calibrate", "-f", "text", "-o", "out"],
    ["bench", "--device", "cpu"],
    ["tune"],
    ["sign", "--key", "{pem}"],
    ["diff", "{plan}"],
    ["receipt"],
    ["memory"],
]


@pytest.mark.parametrize("words", VERBS, ids=[v[0] for v in VERBS])
def test_every_verb_asks_for_trust(atlas, plans, keys, words, tmp_path):
    """A verb that opens a plan refuses one that nobody, or somebody else, has signed: exit code 6."""
    verb, *rest = [w.format(pem=keys[2].pem, plan=plans[0]) for w in words]
    (tmp_path / "text").write_text("In the beginning")
    before = plans[0].read_bytes()
    run = atlas(verb, plans[0], *rest, "--trust", keys[0].pub, cwd=tmp_path)
    assert run.returncode == 6 and f"atlas {verb}: error[UNSIGNED]: {plans[0]}: section signatures: " in run.stderr
    run = atlas(verb, plans[1], *rest, "--trust", keys[2].pub, cwd=tmp_path)
    assert run.returncode == 6 and f"atlas {verb}: error[UNTRUSTED]: {plans[1]}: section signatures: " in run.stderr
    assert plans[0].read_bytes() == before and run.stdout == ""


def test_trust(atlas, small_plan_of, plans, keys, tmp_path):
    words = ["--tokens", "1,2,3", "-n", "4", "--device", "cpu", "-q"]
    free = atlas("run", plans[0], *words)
    for trust in ([keys[0]], [keys[1]], [keys[2], keys[1]]):
        run = atlas("run", plans[1], *words, *(w for k in trust for w in ("--trust", k.pub)))
        assert (run.returncode, run.stdout, run.stderr) == (0, free.stdout, "")
    run = atlas("run", plans[1], *words, "--trust", keys[2].pub)
    assert run.stderr.endswith(
        " and others, none of them trusted\n  help: Check who made it; atlas info shows its keys.\n"
    )
    data = bytearray(plans[1].read_bytes())
    for at, section in (
        (-1, "signatures"),
        (-16, "signatures"),
        (-20, "signatures"),
        (-100, "signatures"),
        (20, None),
        (9000, None),
    ):
        data[at] ^= 2
        (tmp_path / "plan.bin").write_bytes(data)
        data[at] ^= 2
        run = atlas("run", tmp_path / "plan.bin", *words, "--trust", keys[0].pub)
        assert run.returncode == 6 and "error[INTEGRITY]" in run.stderr and (section or "") in run.stderr
    other = bytearray(plans[0].read_bytes())  # moved behind the same plan they hold, behind another they do not
    other[-16:] = data[-16 - 2 * 96 :]
    (tmp_path / "plan.bin").write_bytes(other)
    assert atlas("run", tmp_path / "plan.bin", *words, "--trust", keys[0].pub).returncode == 0
    third = small_plan_of(MODEL, "--target", "none").read_bytes()
    (tmp_path / "plan.bin").write_bytes(third[:-16] + data[-16 - 2 * 96 :])
    run = atlas("run", tmp_path / "plan.bin", *words, "--trust", keys[0].pub)
    assert run.returncode == 6 and " is not valid for this plan\n" in run.stderr


# Key files ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def key_files(tmp_path_factory, keys):
    folder = tmp_path_factory.mktemp("bad")
    rsa_key = rsa.generate_private_key(65537, 2048)
    texts = {
        "rsa.pem": rsa_key.private_bytes(PEM, PKCS8, PLAIN),
        "rsa.pub": rsa_key.public_key().public_bytes(PEM, SPKI),
        "old-rsa.pem": rsa_key.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, PLAIN),
        "ec.pem": ec.generate_private_key(ec.SECP256R1()).private_bytes(PEM, PKCS8, PLAIN),
        "locked.pem": keys[0].private.private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"x")),
        "cut.pem": keys[0].pem.read_bytes()[:70],
        "text.pem": b"hello\n",
        "empty.pem": b"",
        "der.pem": keys[0].private.private_bytes(DER, PKCS8, PLAIN),
    }
    for name, text in texts.items():
        (folder / name).write_bytes(text)
    return folder


@pytest.mark.parametrize(
    "name, why",
    [
        ("rsa.pem", "holds an RSA key: expected an Ed25519 key"),
        ("old-rsa.pem", 'holds "RSA PRIVATE KEY": expected "PRIVATE KEY" with an Ed25519 key'),
        ("ec.pem", "holds an elliptic-curve key: expected an Ed25519 key"),
        ("locked.pem", "the key is encrypted: expected a plain one (openssl pkcs8 -topk8 -nocrypt writes it)"),
        ("cut.pem", "the key file is cut: there is no line -----END PRIVATE KEY-----"),
        ("text.pem", "not a key file: there is no line that starts with -----BEGIN"),
        ("empty.pem", "not a key file: there is no line that starts with -----BEGIN"),
        ("der.pem", "not a key file: there is no line that starts with -----BEGIN"),
        ("none.pem", "No such file or directory"),
    ],
)
def test_bad_private_keys(atlasc, key_files, tmp_path, name, why):
    """Told before anything is compiled, and nothing is written."""
    run = atlasc(FIXTURES / MODEL, "-o", tmp_path / "plan.bin", "--sign", key_files / name)
    assert (run.returncode, run.stderr) == (4, f"{key_files / name}: error[A0107]: {why}\n")
    assert not list(tmp_path.iterdir())


def test_the_same_key_twice(atlasc, keys, tmp_path):
    run = atlasc(FIXTURES / MODEL, "-o", tmp_path / "plan.bin", "--sign", keys[0].pem, "--sign", keys[0].pem)
    assert (run.returncode, run.stderr) == (4, f"{keys[0].pem}: error[A0107]: the key of {keys[0].pem} again\n")


@pytest.mark.parametrize(
    "name, why",
    [
        ("rsa.pub", "holds an RSA key: expected an Ed25519 key"),
        ("rsa.pem", "holds a private key: expected the public one (openssl pkey -pubout writes it)"),
        ("cut.pem", "the key file is cut: there is no line -----END PRIVATE KEY-----"),
        ("none.pem", "No such file or directory"),
    ],
)
def test_bad_public_keys(atlas, plans, key_files, name, why):
    run = atlas("info", plans[1], "--trust", key_files / name)
    assert (run.returncode, run.stdout, run.stderr) == (
        4,
        "",
        f"atlas info: error[KEY]: {key_files / name}: {why}\n  help: openssl pkey -in key.pem -pubout writes one.\n",
    )


# Weights ------------------------------------------------------------------------------------------------------------


def test_verify_embedded(atlas, small_plan_of, tmp_path):
    """A weight that changed is noticed at once, when a session loads it, or never; code and plan always."""
    words = ["--tokens", "1,2,3", "-n", "4", "--device", "cpu", "-q"]
    plan = small_plan_of("llama-trained")
    data = bytearray(plan.read_bytes())
    weights = next(s for s in entries(bytes(data)) if s["name"] == "weights")
    data[weights["offset"] + weights["bytes"] // 2] ^= 1
    copy = tmp_path / "plan.bin"
    copy.write_bytes(data)
    for how in ([], ["--verify", "full"], ["--verify", "lazy"]):
        run = atlas("run", copy, *words, *how)
        assert run.returncode == 6 and "error[INTEGRITY]" in run.stderr and "section weights: bytes " in run.stderr
        assert run.stdout == ""
    assert atlas("info", copy).returncode == 6
    assert atlas("info", copy, "--verify", "lazy").returncode == 0  # no session, nothing is loaded
    assert atlas("run", copy, *words, "--verify", "off").returncode == 0
    expected = atlas("run", plan, *words).stdout
    assert atlas("run", plan, *words, "--verify", "lazy").stdout == expected
    for name in ("graph", "leaves", "plan.sm_90a", "cubins"):
        s = next(s for s in entries(plan.read_bytes()) if s["name"] == name)
        data = bytearray(plan.read_bytes())
        data[s["offset"] + s["bytes"] // 2] ^= 1
        copy.write_bytes(data)
        run = atlas("run", copy, *words, "--verify", "off")
        assert run.returncode == 6 and f"section {name} does not match its hash" in run.stderr
    run = atlas("run", plan, *words, "--verify", "no")
    assert (run.returncode, run.stderr) == (2, "atlas run: error: --verify no: expected full, lazy or off\n")


def test_verify_by_reference(atlas, small_plan_of, tmp_path):
    words = ["--tokens", "1,2,3", "-n", "4", "--device", "cpu", "-q", "--weights", tmp_path / "copy"]
    plan = small_plan_of("llama-trained", "--weights", "ref")
    shutil.copytree(FIXTURES / "llama-trained", tmp_path / "copy")
    assert [atlas("run", plan, *words, "--verify", how).returncode for how in ("full", "lazy", "off")] == [0, 0, 0]
    file = tmp_path / "copy" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    for how in ("full", "lazy"):
        run = atlas("run", plan, *words, "--verify", how)
        assert run.returncode == 6 and "error[INTEGRITY]" in run.stderr
        assert "model.safetensors: " in run.stderr and " differs from the one that was compiled" in run.stderr
    assert atlas("run", plan, *words, "--verify", "off").returncode == 0


# Policy -------------------------------------------------------------------------------------------------------------


def test_policy(atlas, plans, keys, tmp_path):
    def found(plan, text):
        (tmp_path / "policy.toml").write_text(text)
        run = atlas("audit", plan, "--check", "policy.toml", "--json", cwd=tmp_path)
        assert run.returncode in (0, 1), run.stderr
        return [(v["rule"], v["line"], v["text"]) for v in json.loads(run.stdout)["violations"]]

    assert found(plans[0], "[plan]\nsignature = true\n") == [("plan.signature", 2, "the plan has no signature")]
    assert found(plans[1], "[plan]\nsignature = true\n") == []
    listed = f'[plan]\nsigners = ["{keys[2].id}", "{keys[1].id}"]\n'
    assert found(plans[1], listed) == []
    assert found(plans[0], listed) == [("plan.signers", 2, "none of the plan's 0 signatures is by a key of the list")]
    assert found(plans[1], f'[plan]\nsigners = ["{keys[2].id}"]\n') == [
        ("plan.signers", 2, "none of the plan's 2 signatures is by a key of the list")
    ]
    (tmp_path / "policy.toml").write_text('[plan]\nsigners = ["06e3"]\n')
    run = atlas("audit", plans[1], "--check", "policy.toml", cwd=tmp_path)
    assert (run.returncode, run.stderr) == (
        4,
        'atlas audit: policy.toml:2: error: plan.signers: "06e3": expected the id of a key, 64 hexadecimal digits\n',
    )
