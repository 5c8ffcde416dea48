"""MODEL.toml: where it is looked for, what each key may be, and what the plan gets to know."""

import os
import shutil

import pytest

FIXTURE = "tests/fixtures/llama"  # llama of two layers, 307 tokens, 512 positions


@pytest.fixture
def model(repo, tmp_path):
    """A writable copy of a sound checkpoint, without a MODEL.toml of its own."""
    folder = tmp_path / "m"
    folder.mkdir()
    for file in (repo / FIXTURE).iterdir():
        if file.suffix in (".json", ".safetensors") and not file.name.startswith("golden"):
            shutil.copy(file, folder)
    return folder


@pytest.fixture
def compile_toml(atlasc, model):
    """compile_toml(text, *options) -> (resolved options, lines of stderr) of a compile that ends after reading."""

    def run(text, *options):
        if text is not None:
            (model / "MODEL.toml").write_bytes(text.encode() if isinstance(text, str) else text)
        done = atlasc("m", "--dry-run", "-d", "t", "--stop-after=read-text", *options, cwd=model.parent)
        found = [line.split(None, 2) for line in done.stdout.splitlines() if line.startswith("option ")]
        assert (done.returncode == 0) == bool(found), done.stderr
        return {name: value.strip() for _, name, value in found}, done.stderr.splitlines()

    return run


def test_family_defaults(compile_toml):
    options, _ = compile_toml(None)
    assert options["model.family"] == "llama"
    assert options["runtime.slots"] == "8" and options["phases.decode"] == "[1, 2, 4, 8]"
    assert options["kv.page"] == "64" and options["kv.dtype"] == "bf16"
    assert list(options) == sorted(options)


def test_a_plan_records_which_layers_are_rotated(compile_toml):
    options, _ = compile_toml('[kv]\ndtype = "fp8"\nrotate = true\nbf16_first = 1\n')
    assert options["kv.rotate"] == "true" and options["kv.layers"] == "bf16 0, fp8 rotated 1"
    options, _ = compile_toml('[[kv.layers]]\nlayers = [0]\ndtype = "nvfp4"\nrotate = true\n')
    assert "kv.rotate" not in options and options["kv.layers"] == "nvfp4 rotated 0, bf16 1"


def test_user_keys_go_before_the_family(compile_toml):
    text = "[kv]\npage = 128\n[sampling]\ntemperature = 0.7\nstop = [5, 3]\n[weights]\nignore = []\n"
    options, _ = compile_toml(text)
    assert options["kv.page"] == "128" and options["sampling.temperature"] == "0.7"
    assert options["sampling.stop"] == "[5, 3]" and options["runtime.slots"] == "8"


def test_model_option_goes_before_the_folder(compile_toml, model):
    (model.parent / "other.toml").write_text("[kv]\npage = 32\n")
    options, _ = compile_toml("[kv]\npage = 128\n", "--model", "other.toml")
    assert options["kv.page"] == "32"
    _, lines = compile_toml(None, "--model", "absent.toml")
    assert "absent.toml: error[A0102]: cannot be opened: No such file or directory" in lines


@pytest.mark.parametrize(
    ("runtime", "prefill"),
    [
        ("slots = 1\nmax_context = 96\n", "[96]"),
        ("slots = 1\nmax_context = 128\n", "[128]"),
        ("slots = 2\nmax_context = 512\n", "[128, 512, 1024]"),
        ("slots = 8\nmax_context = 512\n", "[128, 512, 2048]"),
        ("slots = 8\nmax_context = 512\n[kv]\npool_tokens = 600\n", "[128, 512, 600]"),
        ("slots = 1\nmax_context = 96\n[phases]\nprefill = [512]\n", "[512]"),
    ],
)
def test_family_prefill_list_ends_at_what_all_slots_hold(compile_toml, runtime, prefill):
    options, _ = compile_toml(f"[runtime]\n{runtime}")
    assert options["phases.prefill"] == prefill


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ("", "64"),
        ("phases.grid = 48\n", "48"),
        ("phases.prefill = [16]\n", "16"),
        ("phases.prefill = [64, 100]\n", "64"),
        ("phases.grid = 512\nphases.prefill = [512]\n", "512"),
        ("phases.grid = 1\n", "1"),
    ],
)
def test_grid_of_prompts(compile_toml, text, grid):
    """The family's value gives way to a small bucket; the user's own does not."""
    assert compile_toml(text)[0]["phases.grid"] == grid


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "phases.grid = 48\n",
            "1:15: error[A0304]: phases.grid = 48: expected a multiple of 64, the rows that Gated DeltaNet solves "
            "together",
        ),
        (
            "phases.prefill = [16]\n",
            "1:18: error[A0304]: phases.prefill = [16]: expected a last entry of at least phases.grid = 64, "
            "since prompts are cut only at multiples of it",
        ),
        ("phases.prefill = [16]\nruntime.max_context = 16\n", None),
    ],
)
def test_grid_of_gated_deltanet(atlasc, repo, tmp_path, text, says):
    (tmp_path / "m.toml").write_text(text)
    run = atlasc(repo / "tests/fixtures/qwen3_5", "--model", tmp_path / "m.toml", "--target", "none", "--dry-run")
    assert (run.returncode, f"{tmp_path}/m.toml:{says}\n" in run.stderr) == ((4, True) if says else (0, False)), (
        run.stderr
    )


@pytest.mark.parametrize(
    ("slots", "decode"),
    [(1, "[1]"), (3, "[1, 2, 3]"), (8, "[1, 2, 4, 8]"), (20, "[1, 2, 4, 8, 16, 20]"), (40, "[1, 2, 4, 8, 16, 32, 40]")],
)
def test_family_decode_list_ends_at_slots(compile_toml, slots, decode):
    options, _ = compile_toml(f"[runtime]\nslots = {slots}\n")
    assert options["phases.decode"] == decode


def test_context_gives_way_to_the_model(compile_toml, model):
    config = (model / "config.json").read_text()
    assert '"max_position_embeddings": 512' in config
    assert compile_toml(None)[0]["runtime.max_context"] == "512"
    assert compile_toml("runtime.max_context = 100\n")[0]["runtime.max_context"] == "100"


@pytest.mark.parametrize(("generation", "text", "expected"), [
    (None, "", ("0", "0", "1", "256")),
    ("{}", "", ("0", "0", "1", "256")),
    ('{"do_sample": true}', "", ("1", "50", "1", "256")),
    ('{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "max_new_tokens": 9}', "", ("0.6", "20", "0.95", "9")),
    ('{"do_sample": false, "temperature": 0.6, "top_k": 20}', "", ("0", "20", "1", "256")),
    ('{"do_sample": true, "temperature": 0.6}', "sampling.temperature = 1.25\nsampling.top_k = 3\n", ("1.25", "3", "1", "256")),
    ('{"do_sample": null, "temperature": null}', "sampling.top_p = 0.5\n", ("0", "0", "0.5", "256")),
])  # fmt: skip
def test_sampling_precedence(compile_toml, model, generation, text, expected):
    """The user's MODEL.toml, then generation_config.json, then the family's file."""
    (model / "generation_config.json").unlink()
    if generation is not None:
        (model / "generation_config.json").write_text(generation)
    options, _ = compile_toml(text)
    assert tuple(options[f"sampling.{k}"] for k in ("temperature", "top_k", "top_p", "max_new_tokens")) == expected


RULES = '[[kernels.pin]]\ntemplate = "gemv_norm"\nphase = "decode"\nlayers = [0, 1]\ntunables = { WARPS = 4 }\n'


def test_rules(compile_toml):
    options, _ = compile_toml(RULES + '[[kernels.ban]]\ntemplate = "gemv_swiglu"\nlayers = "1"\n')
    assert options["kernels.pin.000"] == "template=gemv_norm phase=decode layers=0-1 WARPS=4"
    assert options["kernels.ban.000"] == "template=gemv_swiglu layers=1-1"


MESSAGES = [
    ("[kv]\npgae = 64\n", "2:1: error[A0302]: unknown key kv.pgae: did you mean kv.page?"),
    ("[runtime]\npage = 64\n", "2:1: error[A0302]: unknown key runtime.page: did you mean kv.page?"),
    ("page = 64\n", "1:1: error[A0302]: unknown key page: did you mean kv.page?"),
    ("[runtim]\nslots = 4\n", "1:2: error[A0302]: unknown key runtim"),
    ("[colours]\n", "1:2: error[A0302]: unknown key colours"),
    ("runtime = 1\n", "1:11: error[A0303]: runtime = 1: expected a table"),
    ("runtime.slots = 0\n", "1:17: error[A0303]: runtime.slots = 0: expected an integer from 1 to 1024"),
    ('runtime.slots = "8"\n', '1:17: error[A0303]: runtime.slots = "8": expected an integer from 1 to 1024'),
    ("runtime.slots = 8.0\n", "1:17: error[A0303]: runtime.slots = 8.0: expected an integer from 1 to 1024"),
    ("runtime.slots = true\n", "1:17: error[A0303]: runtime.slots = true: expected an integer from 1 to 1024"),
    ("runtime.slots = { a = 1 }\n", "1:17: error[A0303]: runtime.slots = { a = 1 }: expected an integer from 1 to 1024"),
    ("runtime.max_context = 513\n",
     "1:23: error[A0304]: runtime.max_context = 513: max_position_embeddings = 512 (m/config.json:"),
    ('kv.dtype = "int8"\n', '1:12: error[A0303]: kv.dtype = "int8": expected "bf16", "fp8" or "nvfp4"'),
    ("kv.page = 48\n", "1:11: error[A0303]: kv.page = 48: expected a power of two"),
    ("kv.pool_tokens = 100\n", "1:18: error[A0304]: kv.pool_tokens = 100: expected 0 or at least runtime.max_context = 512, one sequence must fit"),
    ("phases.prefill = []\n", "1:18: error[A0303]: phases.prefill = []: expected 1 to 16 entries"),
    ("phases.prefill = 64\n", "1:18: error[A0303]: phases.prefill = 64: expected a list"),
    ("phases.prefill = [64, 32]\n", "1:23: error[A0303]: phases.prefill[1] = 32 after 64: expected ascending values"),
    ("phases.prefill = [64, 64]\n", "1:23: error[A0303]: phases.prefill[1] = 64 after 64: expected ascending values"),
    ("numerics.fp8_rows = 0\n", "1:21: error[A0303]: numerics.fp8_rows = 0: expected an integer from 1 to 65536"),
    ("phases.grid = 0\n", "1:15: error[A0303]: phases.grid = 0: expected an integer from 1 to 65536"),
    ("phases.prefill = [16, 32]\nphases.grid = 64\n",
     "1:18: error[A0304]: phases.prefill = [16, 32]: expected a last entry of at least phases.grid = 64, since prompts are cut "
     "only at multiples of it"),
    ("phases.decode = [1, 2]\n", "1:17: error[A0304]: phases.decode = [1, 2]: expected a last entry of at least runtime.slots = 8"),
    ("sampling.temperature = -0.5\n", "1:24: error[A0303]: sampling.temperature = -0.5: expected a number from 0 to 100"),
    ("sampling.top_p = 0.0\n", "1:18: error[A0303]: sampling.top_p = 0.0: expected a number above 0 up to 1"),
    ("sampling.stop = [4, 4]\n", "1:21: error[A0303]: sampling.stop[1] = 4 after 4: expected every value once"),
    ("sampling.stop = [307]\n", "1:18: error[A0303]: sampling.stop[0] = 307: expected an integer from 0 to 306"),
    ('weights.ignore = ["a*b*c"]\n', '1:19: error[A0303]: weights.ignore[0] = "a*b*c": expected a name with at most one *'),
    ('weights.ignore = ["model.nrom.weight"]\n',
     '1:19: error[A0305]: weights.ignore: "model.nrom.weight" matches no tensor: did you mean model.norm.weight?'),
    ('model.family = "qwen3"\n', '1:16: error[A0304]: model.family = "qwen3": expected "llama", the family of config.json'),
    ('[[kernels.pin]]\ntemplate = "gemv_nrom"\n',
     '2:12: error[A0305]: template = "gemv_nrom": there is no such template: did you mean gemv_norm?'),
    ("[runtme]\nslots = 3\n", "1:2: error[A0302]: unknown key runtme: did you mean runtime?"),
    ("[sampler]\ntop_q = 3\n", "1:2: error[A0302]: unknown key sampler: did you mean sampling?"),
    ('[[kernel.pin]]\ntemplate = "gemv_norm"\n', "1:3: error[A0302]: unknown key kernel: did you mean kernels?"),
    ("[zebra]\n", "1:2: error[A0302]: unknown key zebra"),
    ('[[kernels.pin]]\nop = "linear"\n', "1:11: error[A0303]: kernels.pin: template is missing"),
    ('[[kernels.ban]]\ntemplate = "gemv_norm"\nlayer = [1]\n', "3:1: error[A0302]: unknown key kernels.ban.layer: did you mean layers?"),
    ('[[kernels.ban]]\ntemplate = "gemv_norm"\nlayers = []\n',
     '3:10: error[A0303]: layers = []: expected "first-last" or a list of layers that is not empty'),
    ('[[kernels.ban]]\ntemplate = "gemv_norm"\nlayers = [1, 99]\n', "3:14: error[A0305]: layers: the model has layers 0 to 1, not 99"),
    ('[[kernels.ban]]\ntemplate = "gemv_norm"\nlayers = [-1]\n', "3:11: error[A0305]: layers: the model has layers 0 to 1, not -1"),
    ('[[kernels.ban]]\ntemplate = "gemv_norm"\nlayers = "1-99"\n', '3:10: error[A0305]: layers = "1-99": the model has layers 0 to 1'),
    ('[[kernels.ban]]\ntemplate = "gemv_norm"\nlayers = "1-0"\n', '3:10: error[A0303]: layers = "1-0": expected "first-last"'),
    ('[[kernels.ban]]\ntemplate = "gemv_norm"\nlayers = [1, 1]\n', "3:14: error[A0303]: layers: 1 occurs twice"),
    ('[[kernels.ban]]\ntemplate = "gemv_norm"\nphase = "probe"\n', '3:9: error[A0305]: phase = "probe": expected prefill, decode, draft, verify or acquire'),
    ('[[kernels.ban]]\ntemplate = "gemv_norm"\nop = "liner"\n', '3:6: error[A0305]: op = "liner": there is no such op: did you mean linear?'),
    ('[[kernels.ban]]\ntemplate = "gemv_norm"\nop = "attention"\n', '3:6: error[A0304]: op = "attention": template gemv_norm implements'),
    ('[[kernels.pin]]\ntemplate = "gemv_norm"\ntunables = { WARP = 4 }\n',
     "3:14: error[A0305]: template gemv_norm has no tunable WARP: did you mean WARPS?"),
    ('[[kernels.pin]]\ntemplate = "gemv_norm"\ntunables = { WARPS = 5 }\n', "3:22: error[A0312]: WARPS = 5: template gemv_norm knows"),
    ('[kernels.pin]\ntemplate = "gemv_norm"\n', "1:10: error[A0303]: kernels.pin = "),
    ("[kv]\npage = 64\npage = 32\n", "3:1: error[A0301]: page is there already, in line 2"),
    (b"kv.dtype = '\xff'\n", "1:13: error[A0301]: not UTF-8: byte 0xff"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), MESSAGES, ids=[m[1][12:52] for m in MESSAGES])
def test_message(compile_toml, text, message):
    options, lines = compile_toml(text)
    assert not options
    assert any(line.startswith(f"m/MODEL.toml:{message}") for line in lines), lines


def test_the_pool_of_all_slots_is_bounded(compile_toml, model):
    """pool_tokens has a range; so has the pool that slots and context make when it is not given."""
    config = model / "config.json"
    config.write_text(
        config.read_text().replace('"max_position_embeddings": 512', '"max_position_embeddings": 2097152')
    )
    text = "[runtime]\nslots = 1024\nmax_context = 2097152\n"
    options, lines = compile_toml(text)
    assert not options
    assert (
        "m/MODEL.toml:2:9: error[A0304]: runtime.slots = 1024 of runtime.max_context = 2097152: together at most "
        "1073741824 tokens, or give kv.pool_tokens"
    ) in lines
    options, _ = compile_toml(text + "[kv]\npool_tokens = 4194304\n")
    assert options["kv.pool_tokens"] == "4194304"
    options, _ = compile_toml(text.replace("1024", "512"))
    assert options["runtime.slots"] == "512"


def test_all_mistakes_at_once(compile_toml):
    _, lines = compile_toml("[runtime]\nslots = 0\nslosts = 1\n[kv]\npage = 3\n[sampling]\ntop_k = -1\n")
    assert sum("m/MODEL.toml:" in line and "error[A03" in line for line in lines) == 4


@pytest.mark.parametrize("kind", ["fifo", "folder", "large"])
def test_no_regular_file(compile_toml, model, kind):
    path = model / "MODEL.toml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"#" * ((1 << 20) + 1))
    options, lines = compile_toml(None)
    assert not options
    assert any("m/MODEL.toml: error[" + ("A0106" if kind == "large" else "A0104") in line for line in lines)


def test_the_help_has_every_key(atlasc, compile_toml):
    """The printed table and what a plan records have the same keys."""
    text = atlasc("--help-model").stdout
    shown = {line.split()[0] for line in text.splitlines()}
    assert all(word in text for word in ("template", "op", "phase", "layers", "tunables"))  # keys of a rule
    options, _ = compile_toml(None)
    given = {"kv.rolling", "kv.rotate", "kv.scales", "quant", "state.dtype", "config", "target.card"} | {
        key for key in shown if key.startswith(("speculate.", "numerics.", "parallel."))
    }
    assert set(options) == {key for key in shown if not key.startswith("kernels.")} - given  # where these are
