"""Ids that have no token, or no row: settings that name one are told or refused, prompts with one are refused."""

import json
import pathlib
import shutil

import pytest

FIXTURE = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "llama"  # 307 rows, 303 tokens
NEVER = "no token has this id, and ids from 303 on are never generated"


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    for file in FIXTURE.iterdir():
        if file.name != "golden.safetensors":
            shutil.copy(file, folder)
    return folder


def change(path, **keys):
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}, indent=1))


def place(path, key):
    """line:column of the value of a key."""
    for n, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith(f'"{key}": '):
            return f"{path}:{n}:{line.index(': ') + 3}"
    raise AssertionError(key)


def read(atlasc, model):
    return atlasc(model, "--stop-after", "read-text", "-d", "t")


def test_an_end_token_without_a_token(atlasc, model):
    change(model / "generation_config.json", eos_token_id=[2, 305])
    run = read(atlasc, model)
    line = next(
        n for n, text in enumerate((model / "generation_config.json").read_text().splitlines(), 1) if "305" in text
    )
    assert run.returncode == 0
    assert (
        run.stderr == f"{model}/generation_config.json:{line}:3: note[A0512]: end token 305: {NEVER}; it ends no text\n"
    )


def test_no_end_token_is_a_token(atlasc, model):
    for file in ("config.json", "generation_config.json"):
        change(model / file, eos_token_id=304)
    change(model / "tokenizer_config.json", eos_token=None)
    run = read(atlasc, model)
    assert run.returncode == 4
    assert run.stderr == (
        f"{place(model / 'config.json', 'eos_token_id')}: error[A0512]: end token 304: {NEVER}, and so it "
        "is with every end token: no text would end; name one in [sampling] stop of MODEL.toml\n"
    )
    toml = model / "MODEL.toml"
    toml.write_text(toml.read_text() + "\n[sampling]\nstop = [2]\n")
    run = read(atlasc, model)
    assert run.returncode == 0 and "note[A0512]: end token 304" in run.stderr


def test_stops_of_the_options(atlasc, model):
    toml = model / "MODEL.toml"
    toml.write_text(toml.read_text() + "\n[sampling]\nstop = [303]\n")
    run = read(atlasc, model)
    line = len(toml.read_text().splitlines())
    assert run.stderr == f"{toml}:{line}:8: note[A0512]: sampling.stop 303: {NEVER}; it ends no text\n"


def test_a_start_token_without_a_token(atlasc, model):
    for file in ("config.json", "generation_config.json"):
        change(model / file, bos_token_id=306)
    run = read(atlasc, model)
    assert run.stderr == (
        f"{place(model / 'generation_config.json', 'bos_token_id')}: note[A0512]: bos_token_id = 306: {NEVER}\n"
    )


def test_a_hole(atlasc, model):
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    last = max(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    tokenizer["model"]["vocab"][last] += 2
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    change(model / "config.json", eos_token_id=[2, 303])
    run = read(atlasc, model)
    assert "note[A0512]: end token 303: no token has this id; it ends no text\n" in run.stderr
    assert "tokens     305 " in run.stdout


def test_an_end_token_behind_the_rows(atlasc, model):
    change(
        model / "tokenizer_config.json",
        eos_token="<end>",
        extra_special_tokens=["<a>", "<b>", "<c>", "<d>"],
        bos_token="<x>",
    )
    run = read(atlasc, model)
    assert run.returncode == 0, run.stderr
    change(
        model / "tokenizer_config.json",
        bos_token="<1>",
        unk_token="<2>",
        sep_token="<3>",
        eos_token="<|im_end|>",
        pad_token="<4>",
        cls_token="<5>",
        extra_special_tokens={"eos_token": "<end>"},
    )
    run = read(atlasc, model)
    assert run.returncode == 0 and "note[A0511]: 2 added tokens have no row of the vocabulary (307)" in run.stderr


def test_no_end_token_has_a_row(atlasc, model):
    """The end token of the tokenizer lies behind the rows, and no other file names one."""
    for file in ("config.json", "generation_config.json"):
        change(model / file, eos_token_id=None)
    change(
        model / "tokenizer_config.json",
        extra_special_tokens={"a": "<a>", "b": "<b>", "c": "<c>", "d": "<d>"},
        bos_token="<x>",
        eos_token="<end>",
    )
    told = "eos_token has id 304, which is not a row of the vocabulary (304)"
    change(model / "config.json", vocab_size=304)
    run = read(atlasc, model)
    assert (
        run.returncode == 4
        and (
            f"{place(model / 'tokenizer_config.json', 'eos_token')}: error[A0512]: {told}, and no "
            "file names another: no text would end; name one in [sampling] stop of MODEL.toml\n"
        )
        in run.stderr
    ), run.stderr
    toml = model / "MODEL.toml"
    toml.write_text(toml.read_text() + "\n[sampling]\nstop = [2]\n")
    run = read(atlasc, model)
    assert f"note[A0512]: {told}: it ends no text\n" in run.stderr


def test_a_token_behind_the_rows(atlasc, atlas, model, tmp_path, kernel_cache):
    """[PAD] with the id of the row behind the last: accepted and told; a prompt that has it is refused."""
    change(model / "tokenizer_config.json", extra_special_tokens=["<a>", "<b>", "<c>", "<d>", "[PAD]"])
    plan = tmp_path / "plan.bin"
    run = atlasc(model, "-o", plan, "--target", "none", "--cache-dir", kernel_cache)
    assert (run.returncode, run.stderr.splitlines()[0]) == (
        0,
        f'{model}/tokenizer.json: note[A0511]: 1 added token has no row of the vocabulary (307), the first is "[PAD]" '
        "with id 307: never generated, and an error in a prompt",
    )
    run = atlas("run", plan, "--device", "cpu", "-n", 4, "-p", "a[PAD]b")
    assert run.returncode == 4 and run.stderr == (
        "atlas run: error[TOKEN]: the prompt: token id 307 (number 2 of 3): ids go from 0 to 306\n"
    )
    run = atlas("run", plan, "--device", "cpu", "-n", 4, "--tokens", "5,307")
    assert run.returncode == 4 and "--tokens: token id 307 (number 2 of 2): ids go from 0 to 306" in run.stderr
    assert atlas("run", plan, "--device", "cpu", "-n", 4, "-p", "a<d>b").returncode == 0
    told = atlas("info", plan).stdout
    assert "ids          307 rows of the vocabulary, 307 with a token; only ids below 307 are sampled" in told
    document = json.loads(atlas("info", plan, "--json").stdout)
    assert (document["vocab"], document["tokens"], document["drawable"]) == (307, 307, 307)


def test_both_counts(atlasc, atlas, model, tmp_path, kernel_cache):
    plan = tmp_path / "plan.bin"
    assert atlasc(model, "-o", plan, "--target", "none", "--cache-dir", kernel_cache).returncode == 0
    assert (
        "ids          307 rows of the vocabulary, 303 with a token; only ids below 303 are sampled and count in log "
        "probabilities\n"
    ) in atlas("info", plan).stdout
    document = json.loads(atlas("info", plan, "--json").stdout)
    assert (document["vocab"], document["tokens"], document["drawable"]) == (307, 303, 303)


# The chat template: which file wins ---------------------------------------------------------------------------------

TEMPLATES = {
    "config": ({"config": "C"}, "C"),
    "file": ({"config": "C", "jinja": "J"}, "J"),
    "additional default": ({"config": "C", "jinja": "J", "more": {"default": "D"}}, "D"),
    "additional others": ({"config": "C", "jinja": "J", "more": {"tool_use": "T"}}, "J"),
    "additional others alone": ({"config": "C", "more": {"tool_use": "T"}}, None),
    "list": ({"config": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "C"}]}, "C"),
    "object": ({"config": {"tool_use": "T", "default": "C"}}, "C"),
    "object without": ({"config": {"tool_use": "T"}}, None),
    "none": ({}, None),
    "null": ({"config": None}, None),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_chat_template(name, atlasc, model):
    files, expected = TEMPLATES[name]
    config = model / "tokenizer_config.json"
    keys = json.loads(config.read_text())
    del keys["chat_template"]
    if "config" in files:
        keys["chat_template"] = files["config"]
    config.write_text(json.dumps(keys))
    if "jinja" in files:
        (model / "chat_template.jinja").write_text(files["jinja"] * 2)
    for key, text in files.get("more", {}).items():
        (model / "additional_chat_templates").mkdir(exist_ok=True)
        (model / "additional_chat_templates" / f"{key}.jinja").write_text(text * 3)
    run = read(atlasc, model)
    length = {"C": 1, "J": 2, "D": 3, None: 0}[expected]
    assert run.returncode == 0 and f"chat_template {length} bytes\n" in run.stdout
    others = "tool_use" in json.dumps(files)
    reason = '"default" is' if expected else 'none is called "default"'
    assert others == (f"note[A0513]: chat template tool_use is not used; {reason}\n" in run.stderr)
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(str(model)).chat_template
    if isinstance(reference, dict):
        reference = reference.get("default")
    assert len(reference or "") == length


def test_line_ends_of_a_template(atlasc, model):
    """Python reads a text so, and hands it on."""
    text = b"a\r\nb\rc\n\r\n\r\r"
    (model / "chat_template.jinja").write_bytes(text)
    run = read(atlasc, model)
    expected = (model / "chat_template.jinja").read_text()
    assert len(expected) == 9 and f"chat_template {len(expected)} bytes\n" in run.stdout


def test_a_mistake_that_two_passes_see_is_one(atlasc, model):
    """tokenizer_config.json is read for the chat template and for the tokenizer."""
    (model / "tokenizer_config.json").write_bytes(b"\xef\xbb\xbf{}")
    run = read(atlasc, model)
    assert (run.returncode, run.stderr) == (
        4,
        f"{model}/tokenizer_config.json:1:1: error[A0501]: starts with a byte-order mark: save the file without it\n",
    )
    assert json.loads(atlasc(model, "--stop-after", "read-text", "--json").stdout)["errors"] == 1
