"""atlas run --json-schema and --regex."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 99}, "b": {"type": "string", "maxLength": 9}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def plan(small_plan_of):
    return small_plan_of("llama-trained")


def run(atlas, plan, *words, **more):
    return atlas("run", plan, "--device", "cpu", *words, **more)


def test_answers_of_many_prompts(atlas, plan, tmp_path):
    schema, prompts = tmp_path / "schema.json", tmp_path / "prompts.jsonl"
    schema.write_text(json.dumps(SCHEMA))
    prompts.write_text(
        "".join(json.dumps({"prompt": f"In {i}", "temperature": 1.5, "seed": i}) + "\n" for i in range(7))
    )
    done = run(atlas, plan, "-f", prompts, "-n", 200, "--json", "--json-schema", schema)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 7 and all((a["finish"], a["ended_by"]) == ("stop", "whole structure") for a in answers)
    for answer in answers:
        jsonschema.validate(json.loads(answer["text"]), SCHEMA)


def test_an_expression(atlas, plan):
    for seed in range(5):
        words = ("-p", "In the beginning", "-n", 40, "--temperature", 1, "--seed", seed, "-q")
        done = run(atlas, plan, *words, "--regex", "[a-z]{3,5} [0-9]{2}[.!]")
        assert done.returncode == 0 and re.fullmatch("[a-z]{3,5} [0-9]{2}[.!]", done.stdout), done.stdout


@pytest.mark.parametrize(
    "schema,code,message",
    [
        (
            '{"properties": {"a": {"$dynamicRef": "#"}}}',
            4,
            "schema.json at /properties/a/$dynamicRef: $dynamicRef is not supported",
        ),
        ('{"type":', 4, "schema.json:1:8: "),
        (None, 5, "schema.json: No such file"),
    ],
    ids=["refused", "no JSON", "missing"],
)
def test_bad_schemas(atlas, plan, tmp_path, schema, code, message):
    file = tmp_path / "schema.json"
    if schema:
        file.write_text(schema)
    done = run(atlas, plan, "-p", "a", "-n", 4, "--json-schema", file)
    assert done.returncode == code and message in done.stderr, done.stderr


def test_bad_expressions(atlas, plan):
    done = run(atlas, plan, "-p", "a", "-n", 4, "--regex", "(a")
    assert done.returncode == 4 and "--regex: ')' is missing, at byte 2" in done.stderr
    done = run(atlas, plan, "-p", "a", "-n", 4, "--regex", "a", "--json-schema", "x")
    assert done.returncode == 2 and "give one of them" in done.stderr
