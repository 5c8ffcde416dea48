"""What a folder may be, and what may lie in it: caches of the hub, files of other formats, adapters and other weights
beside those that are read, indexes whose shards hold a tensor twice.

Containers are written by `safetensors`; which of two copies counts is held against what a loader ends with that reads the
shards in order of their names, as `transformers` does.
"""

import json
import pathlib
import re
import shutil
import sys

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mkckpt"))
import mkckpt  # noqa: E402

WORDS = ["--dry-run", "--stop-after=build-graph"]


@pytest.fixture
def model(tmp_path):
    mkckpt.make("plain", tmp_path / "m")
    return tmp_path / "m"


def lines(run, what):
    return [line for line in run.stderr.splitlines() if f" {what}[A" in line]


def told(atlasc, model, code="A0408"):
    run = atlasc("m", *WORDS, cwd=model.parent)
    assert run.returncode == 0, run.stderr
    return [line.removeprefix("m/") for line in lines(run, "note") if f"[{code}]" in line]


# Beside the weights ---------------------------------------------------------------------------------------------------

ADAPTER = "an adapter, which other loaders apply to the weights: merge it into them if it belongs to the model"
FORMAT = "only safetensors are, and other loaders may take these weights in their place"
OTHER = "the weights are those of model.safetensors"
FOLDER = "a folder with other weights"
SETTINGS = "what quantization_config in config.json says counts"
NEIGHBOURS = {
    "adapter_config.json": ADAPTER, "adapter_model.safetensors": ADAPTER, "adapter_model.bin": ADAPTER,
    "consolidated.safetensors": OTHER, "model.fp16.safetensors": OTHER, "model-00001-of-00002.safetensors": OTHER,
    "model.safetensors.index.fp16.json": OTHER, "consolidated.safetensors.index.json": OTHER,
    "pytorch_model.bin": FORMAT, "pytorch_model-00001-of-00002.bin": FORMAT, "pytorch_model.bin.index.json": FORMAT,
    "consolidated.00.pth": FORMAT, "model-Q4_K_M.gguf": FORMAT, "tf_model.h5": FORMAT, "flax_model.msgpack": FORMAT,
    "model.ckpt": FORMAT, "model.onnx": FORMAT, "model.nemo": FORMAT,
    "original/consolidated.00.pth": FOLDER, "fp8/model.safetensors": FOLDER, "adapter/adapter_config.json": FOLDER,
    "checkpoint-10/pytorch_model.bin": FOLDER, "quantize_config.json": SETTINGS, "quant_config.json": SETTINGS,
}  # fmt: skip


@pytest.mark.parametrize("name", NEIGHBOURS)
@pytest.mark.parametrize("shards", [1, 2])
def test_a_neighbour_is_told(name, shards, atlasc, tmp_path):
    if shards == 1:
        mkckpt.make("plain", tmp_path / "m")
    else:
        mkckpt.build({**mkckpt.DEFAULTS, "shards": 2, "shard_style": "part-{i}.safetensors"}).write(tmp_path / "m")
    assert told(atlasc, tmp_path / "m") == []
    path = tmp_path / "m" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"{}")
    why = "the index does not name it" if shards == 2 and NEIGHBOURS[name] == OTHER else NEIGHBOURS[name]
    shown = name.partition("/")[0]
    assert told(atlasc, tmp_path / "m") == [f"{shown}: note[A0408]: not read: {why}"]


def test_many_neighbours_are_a_line_a_kind(atlasc, model):
    for name in (*NEIGHBOURS, "adapter_model.bin"):
        (model / name).parent.mkdir(exist_ok=True)
        (model / name).write_bytes(b"{}")
    assert told(atlasc, model) == [
        f"adapter_config.json: note[A0408]: not read, nor are adapter_model.bin and 1 more: {ADAPTER}",
        f"consolidated.safetensors: note[A0408]: not read, nor are consolidated.safetensors.index.json and 3 more: {OTHER}",
        f"consolidated.00.pth: note[A0408]: not read, nor are flax_model.msgpack and 8 more: {FORMAT}",
        f"adapter: note[A0408]: not read, nor are checkpoint-10 and 2 more: {FOLDER}",
        f"quant_config.json: note[A0408]: not read, nor is quantize_config.json: {SETTINGS}",
    ]


def test_one_file_beside_the_shards_of_an_index(atlasc, tmp_path):
    """transformers looks for model.safetensors first, so that the folder means other weights there."""
    mkckpt.build({**mkckpt.DEFAULTS, "shards": 2}).write(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"{}")
    assert told(atlasc, tmp_path / "m") == [
        "model.safetensors: note[A0408]: not read: the index does not name it, and "
        "transformers takes it in place of the index's shards: only one of them should be there"
    ]


@pytest.mark.parametrize("nested", [False, True])
def test_a_config_that_names_the_file_of_weights(nested, atlasc, tmp_path):
    """transformers reads that one in place of model.safetensors, also where the language model is a part."""
    mkckpt.build({**mkckpt.DEFAULTS, "family": "qwen3", "nested": nested}).write(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    for value in None, "model.safetensors", "model.safetensors.index.json", "more.safetensors":
        path.write_text(json.dumps({**config, "transformers_weights": value}))
        run = atlasc("m", *WORDS, cwd=tmp_path)
        assert (run.returncode, "transformers_weights" in run.stderr) == (
            (4, True) if value == "more.safetensors" else (0, False)
        )
    assert lines(run, "error")[0].endswith(
        '[A0206]: transformers_weights = "more.safetensors": this feature is not implemented'
    )


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "training_args.bin",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state_0.pth",
        "scaler.pt",
        "optimizer/state.json",
        "tokenizer.model",
        "vocab.json",
        "figures/a.png",
        ".cache/model.safetensors",
    ],
)
def test_other_files_are_nobodys_business(name, atlasc, model):
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_bytes(b"{}")
    assert told(atlasc, model) == []


def test_containers_of_other_things(atlasc, model):
    """Scales of a cache, or logits: no loader takes them for the model's weights. With weights in them they do."""
    save_file({"model.layers.0.self_attn.k_scale": np.ones(1, np.float32)}, model / "kv.safetensors")
    assert told(atlasc, model) == []
    save_file({"model.layers.7.mlp.up_proj.weight": np.ones(1, np.float32)}, model / "more.safetensors")
    assert told(atlasc, model) == [f"more.safetensors: note[A0408]: not read: {OTHER}"]


# Indexes --------------------------------------------------------------------------------------------------------------


def shard_twice(model, sent_to, copies):
    """model.norm.weight in the shards `copies` (name -> value); the index sends it to one of them."""
    tensors = {}
    with safe_open(model / "model.safetensors", "np") as f:
        for name in f.keys():
            tensors[name] = f.get_tensor(name)
    (model / "model.safetensors").unlink()
    shards, names = {"a.safetensors": {}, "b.safetensors": {}, "c.safetensors": {}}, sorted(tensors)
    for i, name in enumerate(names):
        shards[list(shards)[i % 3]][name] = tensors[name]
    where = {name: file for file, part in shards.items() for name in part} | {"model.norm.weight": sent_to}
    for file, part in shards.items():
        part.pop("model.norm.weight", None)
        if file in copies:
            part["model.norm.weight"] = np.full_like(tensors["model.norm.weight"], copies[file])
        save_file(part, model / file)
    (model / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": where})
    )
    last = {}  # what a loader ends with that reads all shards
    for file in sorted(shards):
        with safe_open(model / file, "np") as f:
            last |= {name: file for name in f.keys()}
    return last["model.norm.weight"]


@pytest.fixture
def wide(tmp_path):
    mkckpt.build({**mkckpt.DEFAULTS, "dtype": "F32"}).write(tmp_path / "m")
    return tmp_path / "m"


@pytest.mark.parametrize("sent_to, copies, stale", [
    ("b.safetensors", {"a.safetensors": 1, "b.safetensors": 2}, ("a", 1)),
    ("c.safetensors", {"a.safetensors": 1, "b.safetensors": 2, "c.safetensors": 3}, ("a", 2)),
    ("c.safetensors", {"b.safetensors": 2, "c.safetensors": 2}, ("b", 1)),
    ("a.safetensors", {"a.safetensors": 1, "c.safetensors": 1}, ("c", 1)),  # the same bytes: no matter which
])  # fmt: skip
def test_the_index_decides(sent_to, copies, stale, atlasc, wide):
    last = shard_twice(wide, sent_to, copies)
    assert copies[last] == copies[sent_to], "the case is not what loaders take"
    file, n = stale
    rest = (
        f"model.norm.weight{' and 1 more' if n > 1 else ''}: the index sends {'them' if n > 1 else 'it'} to {sent_to}"
    )
    rest += " and others, so that these copies are not read" if n > 1 else ", so that this copy is not read"
    assert told(atlasc, wide, "A0410") == [f"{file}.safetensors: note[A0410]: {rest}"]
    assert told(atlasc, wide) == [], "total_size counts a tensor once"
    run = atlasc("m", "-d", "w", "--stop-after=read-weights", cwd=wide.parent)
    [shard] = re.findall(r"^tensor +model\.norm\.weight .* shard (\d)", run.stdout, re.M)
    names = re.findall(r"^shard +(\d) +(\S+)", run.stdout, re.M)
    assert dict(names)[shard] == sent_to


def test_an_index_against_what_loaders_take(atlasc, wide):
    last = shard_twice(wide, "a.safetensors", {"a.safetensors": 1, "b.safetensors": 2})
    assert last == "b.safetensors"
    run = atlasc("m", *WORDS, cwd=wide.parent)
    assert run.returncode == 4
    [line] = lines(run, "error")
    assert line.endswith(
        "error[A0407]: model.norm.weight: the index assigns it to a.safetensors, but loaders that read the "
        "shards in order use the other copy, in b.safetensors"
    )
    assert re.match(r"m/model\.safetensors\.index\.json:1:\d+: ", line)


def test_an_index_that_sends_it_where_it_is_not(atlasc, wide):
    shard_twice(wide, "c.safetensors", {"a.safetensors": 1, "b.safetensors": 2})
    run = atlasc("m", *WORDS, cwd=wide.parent)
    assert run.returncode == 4
    assert [line.partition("error")[2] for line in lines(run, "error")] == [
        "[A0407]: model.norm.weight is not in c.safetensors but in b.safetensors"
    ]


@pytest.mark.parametrize(
    "text, is_told",
    [
        ("251264", False),
        ("251264.0", False),
        ("2.51264e5", False),
        ("null", False),
        ("251265", True),
        ("251264.5", True),
        ('"251264"', True),
    ],
)
def test_total_size_is_a_number(text, is_told, atlasc, tmp_path):
    mkckpt.build({**mkckpt.DEFAULTS, "shards": 2}).write(tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors.index.json"
    path.write_text(re.sub(r'"total_size": \d+', f'"total_size": {text}', path.read_text()))
    want = [f"model.safetensors.index.json:3:19: note[A0408]: total_size = {text}: the tensors have 251264 bytes"]
    assert told(atlasc, tmp_path / "m") == (want if is_told else [])


@pytest.mark.parametrize(
    "edit, name",
    [
        ({"metadata": {"total_parameters": 3, "format": "pt"}}, None),
        ({}, None),
        ({"metadata": None}, None),
        ({"metadata": {"shrad": 1, "x": 2}}, "metadata.shrad"),
        ({"weight_mapp": {}}, "weight_mapp"),
    ],
)
def test_every_key_of_an_index(edit, name, atlasc, tmp_path):
    mkckpt.build({**mkckpt.DEFAULTS, "shards": 2}).write(tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": json.loads(path.read_text())["weight_map"], **edit}))
    got = [line.partition(": note")[2] for line in told(atlasc, tmp_path / "m", "A0207") if "index" in line]
    assert got == ([f"[A0207]: unknown keys are not used: {name}"] if name else [])
    path.write_text(json.dumps({"weight_map": json.loads(path.read_text())["weight_map"], "metadata": 3}))
    run = atlasc("m", *WORDS, cwd=tmp_path)
    assert run.returncode == 4 and "error[A0406]: metadata = 3: expected a table" in run.stderr


# Caches ---------------------------------------------------------------------------------------------------------------

HASH = "0123456789abcdef0123456789abcdef01234567"


def put_in_cache(source, folder, revision=HASH, main=True):
    """As the hub's client lays a repository out: files as links into blobs."""
    snapshot = folder / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir(exist_ok=True)
    for file in source.iterdir():
        shutil.copy(file, folder / "blobs" / f"{revision[:4]}-{file.name}")
        (snapshot / file.name).symlink_to(f"../../blobs/{revision[:4]}-{file.name}")
    (folder / "refs").mkdir(exist_ok=True)
    if main:
        (folder / "refs" / "main").write_text(revision)
    return snapshot


@pytest.fixture
def cache(model, tmp_path):
    folder = tmp_path / "hub" / "models--org--name"
    put_in_cache(model, folder)
    return folder


def test_the_snapshot_of_refs_main(atlasc, cache, model, tmp_path):
    """Whatever of its folders is named, and plans are those of the plain folder, byte for byte."""
    words = ["--target", "none", "-q", "-o"]
    assert atlasc(model, *words, tmp_path / "plain.bin").returncode == 0
    for i, given in enumerate(
        [
            cache,
            cache.parent,
            cache.parent.parent,
            cache / "snapshots" / HASH,
            f"{cache}/",
            cache / "snapshots",
            cache / "blobs",
            f"{cache}/refs/",
        ]
    ):
        run = atlasc(given, *words, tmp_path / f"{i}.bin")
        assert run.returncode == 0, run.stderr
        note = f"{cache}/snapshots/{HASH}: note[A0411]: this snapshot is read, which refs/main names"
        assert (note in run.stderr.splitlines()) == (i != 3)
        assert (tmp_path / f"{i}.bin").read_bytes() == (tmp_path / "plain.bin").read_bytes()


def test_plans_find_their_weights_in_a_cache(atlasc, atlas, cache, model, tmp_path):
    """The folder that was compiled is the one to run with, and a message names the file by its folder."""
    plan = tmp_path / "ref.bin"
    assert atlasc(cache, "--target", "none", "--weights", "ref", "-q", "-o", plan).returncode == 0

    def run(folder):
        return atlas("run", plan, "--tokens", "1,2,3", "-n", "4", "--device", "cpu", "-q", "--weights", folder)

    want = run(model)
    assert want.returncode == 0, want.stderr
    for folder in cache, f"{cache}/", cache / "snapshots" / HASH:
        assert run(folder).stdout == want.stdout
    (cache / "refs" / "main").write_text("../../snapshots/" + HASH)
    for folder in cache, tmp_path:
        wrong = run(folder)
        assert wrong.returncode == 5
        assert f"error[IO]: {folder}/model.safetensors: No such file or directory" in wrong.stderr


def test_other_revisions_are_not_taken(atlasc, cache, tmp_path):
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "config.json").write_text("{")
    put_in_cache(bad, cache, "f" * 40, main=False)
    (cache / "refs" / "pr").mkdir()
    (cache / "refs" / "main").write_text(HASH + "\n")
    run = atlasc(cache, *WORDS)
    assert run.returncode == 0 and f"snapshots/{HASH}: note[A0411]" in run.stderr


def refused(atlasc, path, *words):
    run = atlasc(path, "--dry-run", *words)
    assert run.returncode == 4, run.stderr
    return lines(run, "error")


def test_caches_that_cannot_be_read(atlasc, cache, model, tmp_path):
    hub = cache.parent
    (cache / "refs" / "main").write_text("9" * 40)
    assert refused(atlasc, cache) == [
        f'{cache}/refs/main: error[A0412]: "{"9" * 40}": there is no such snapshot; there is {HASH}'
    ]
    (cache / "refs" / "main").write_text("../../..")
    assert refused(atlasc, cache) == [
        f'{cache}/refs/main: error[A0412]: "../../..": there is no such snapshot; there is {HASH}'
    ]
    (cache / "refs" / "main").unlink()
    assert refused(atlasc, hub) == [
        f"{cache}/refs/main: error[A0412]: missing, so it is unknown which snapshot to "
        f"use: name one of {cache}/snapshots/{HASH}"
    ]
    shutil.rmtree(cache / "snapshots")
    (cache / "snapshots").mkdir()
    assert refused(atlasc, hub) == [
        f"{cache}/refs/main: error[A0412]: missing, so it is unknown which snapshot to use: there are no snapshots"
    ]
    (cache / "snapshots").rmdir()  # as a download leaves it that never began
    assert (
        refused(atlasc, hub)
        == refused(atlasc, cache / "blobs")
        == [f"{cache}/refs/main: error[A0412]: missing, so it is unknown which snapshot to use: there are no snapshots"]
    )
    put_in_cache(model, hub / "models--org--other")
    assert refused(atlasc, hub) == [
        f"{hub}: error[A0412]: 2 models are there: name one of models--org--name, models--org--other"
    ]
    assert refused(atlasc, tmp_path)[0].startswith(f"{hub}: error[A0412]: 2 models are there")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_download_that_did_not_end(name, atlasc, cache):
    (cache / "blobs" / f"0123-{name}").unlink()
    assert refused(atlasc, cache) == [
        f"{cache}/snapshots/{HASH}/{name}: error[A0102]: cannot be opened: a link to "
        f"../../blobs/0123-{name}, which is missing"
    ]


# Other formats --------------------------------------------------------------------------------------------------------

READ = "a folder of config.json, safetensors and tokenizer.json is read, as the Hugging Face hub has them"
HEADS = {
    "a GGUF file": b"GGUF\3\0\0\0" + bytes(40), "a GGML file": b"tjgg" + bytes(40),
    "a zip archive, as PyTorch writes .bin and .pth files": b"PK\3\4" + bytes(60),
    "a pickle, as PyTorch writes .bin and .pth files": b"\x80\x02\x8a\x0a" + bytes(60),
    "a Git LFS pointer, whose file `git lfs pull` fetches":
        b"version https://git-lfs.github.com/spec/v1\noid sha256:12ab\nsize 12345\n",
    "an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(60), "a tar archive": bytes(257) + b"ustar\0" + b"00" + bytes(300),
    "a gzip archive": b"\x1f\x8b\x08" + bytes(60), "a Zstandard archive": b"\x28\xb5\x2f\xfd" + bytes(60),
    "a safetensors file": b"\x02\0\0\0\0\0\0\0{}",
}  # fmt: skip


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", ["model.gguf", "model", "model.json"])
def test_a_file_of_another_format(kind, name, atlasc, tmp_path):
    path = tmp_path / name
    path.write_bytes(HEADS[kind])
    want = [f"{path}: error[A0104]: {kind}, not a folder: {READ}"]
    assert refused(atlasc, path) == want and refused(atlasc, path, "--random-weights") == want


@pytest.mark.parametrize("kind", [kind for kind in HEADS if "safetensors" not in kind])
@pytest.mark.parametrize("shards", [1, 2])
def test_weights_that_are_no_safetensors(kind, shards, atlasc, tmp_path):
    mkckpt.build({**mkckpt.DEFAULTS, "shards": shards}).write(tmp_path / "m")
    path = sorted((tmp_path / "m").glob("*.safetensors"))[-1]
    path.write_bytes(HEADS[kind])
    assert refused(atlasc, tmp_path / "m") == [f"{path}: error[A0401]: {kind}, not a safetensors file"]


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
        "model.safetensors.index.json",
    ],
)
def test_a_clone_without_its_large_files(name, atlasc, model):
    (model / name).write_bytes(list(HEADS.values())[4])
    assert refused(atlasc, model) == [
        f"{model}/{name}: error[A0102]: a Git LFS pointer, whose file `git lfs pull` fetches"
    ]


def test_a_plan_and_a_text(atlasc, model, tmp_path):
    assert atlasc(model, "--target", "none", "-o", tmp_path / "p.bin").returncode == 0
    assert refused(atlasc, tmp_path / "p.bin") == [f"{tmp_path}/p.bin: error[A0104]: a plan, not a folder: {READ}"]
    (tmp_path / "t").write_text("hello")
    assert refused(atlasc, tmp_path / "t") == [
        f"{tmp_path}/t: error[A0104]: not a folder: give the checkpoint's folder"
    ]


@pytest.mark.parametrize(
    "name, kind",
    [
        ("m-Q8_0.gguf", "a GGUF file"),
        ("pytorch_model.bin", list(HEADS)[2]),
        ("consolidated.00.pth", list(HEADS)[3]),
        ("weights.tar", "a tar archive"),
    ],
)
def test_a_folder_of_another_format(name, kind, atlasc, tmp_path):
    (tmp_path / name).write_bytes(HEADS[kind])
    assert refused(atlasc, tmp_path) == [
        f"{tmp_path}: error[A0409]: {name} is there ({kind}), and no config.json: {READ}"
    ]


@pytest.mark.parametrize(
    "name, rest",
    [
        ("m.gguf", "but only safetensors of the Hugging Face layout are read"),
        ("consolidated.safetensors", "but only safetensors of the Hugging Face layout are read"),
        ("model-00001-of-00002.safetensors", "but not model.safetensors.index.json, which names the shards"),
    ],
)
def test_a_config_beside_weights_of_another_name(name, rest, atlasc, model):
    (model / "model.safetensors").rename(model / name)
    assert refused(atlasc, model) == [f"{model}/model.safetensors: error[A0409]: no such file; {name} is there, {rest}"]


@pytest.mark.parametrize(
    "name", ["tokenizer.model", "tokenizer.model.v3", "tekken.json", "tiktoken.model", "vocab.json"]
)
def test_a_tokenizer_in_another_form(name, atlasc, model):
    (model / "tokenizer.json").unlink()
    (model / name).write_text("{}")
    run = atlasc("m", *WORDS, cwd=model.parent)
    assert (run.returncode, run.stderr) == (
        4,
        f"m/{name}: error[A0505]: a tokenizer without tokenizer.json: save it as tokenizer.json first\n",
    )
