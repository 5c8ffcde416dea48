"""Drives tests/text/chatdump.c, and its oracle: jinja2 as transformers sets it."""

import copy
import datetime
import functools
import json
import struct
import subprocess

import jinja2
import transformers.utils.chat_template_utils as reference

FAULTS = ["ok", "input", "raised", "value", "limit", "memory"]
NOW = 1753747200  # 2025-07-29 00:00:00 UTC


class Chatdump:
    """One process that compiles templates and renders with the last one."""

    def __init__(self, program):
        assert program.exists(), f"{program} is missing: run make tests"
        self.process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _send(self, kind, payload):
        self.process.stdin.write(kind + struct.pack("<I", len(payload)) + payload)
        self.process.stdin.flush()

    def _take(self, n):
        data = self.process.stdout.read(n)
        assert len(data) == n, f"chatdump ended: exit code {self.process.wait()}"
        return data

    def _text(self):
        return self._take(struct.unpack("<I", self._take(4))[0])

    def compile(self, template, **special):
        """(compiled, remarks): special are the tokenizer's named tokens."""
        self._send(b"g", b"".join(k.encode() + b"\0" + v.encode() + b"\0" for k, v in special.items()))
        self._send(b"t", template.encode())
        return self._take(1) == b"\1", self._text().decode().splitlines()

    def render(self, conversation, now=NOW, limits=None):
        """(fault, text, spans) of a conversation as a dict, or as JSON text."""
        text = conversation if isinstance(conversation, (str, bytes)) else json.dumps(conversation, ensure_ascii=False)
        text = text.encode() if isinstance(text, str) else text
        head = struct.pack("<q", now) + (struct.pack("<3q", *limits) if limits else b"")
        self._send(b"l" if limits else b"r", head + text)
        fault = FAULTS[self._take(1)[0]]
        text = self._text().decode()
        n = struct.unpack("<I", self._take(4))[0]
        return fault, text, [struct.unpack("<2I", self._take(8)) for _ in range(n)]

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0


class Clock(datetime.datetime):
    """datetime.now() is NOW: what strftime_now of transformers asks."""

    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)


reference.datetime = Clock

plain = reference.ImmutableSandboxedEnvironment.from_string


def with_from_json(environment, *args, **kwargs):
    """The filter that some templates use; transformers does not have it, their makers' own code does."""
    environment.filters["from_json"] = environment.filters["fromjson"] = json.loads
    return plain(environment, *args, **kwargs)


reference.ImmutableSandboxedEnvironment.from_string = with_from_json


@functools.lru_cache
def compiled(template):
    environment = reference._compile_jinja_template(template)
    return environment


def oracle(template, conversation, **special):
    """("ok", text), ("raised", words) or ("value", the error) by transformers' own code."""
    given = dict(conversation)
    kwargs = {**special, **given.pop("chat_template_kwargs", {})}
    given.setdefault("add_generation_prompt", not given.get("continue_final_message"))
    try:
        rendered, _ = reference.render_jinja_template(
            [given.pop("messages")], chat_template=template, **given, **kwargs
        )
    except jinja2.exceptions.TemplateSyntaxError as e:
        return "syntax", f"{e.lineno}: {e.message}"
    except jinja2.exceptions.TemplateError as e:
        kind = "raised" if type(e) is jinja2.exceptions.TemplateError else "value"
        return kind, str(e)
    except Exception as e:  # whatever Python says about the values of a template
        return "value", f"{type(e).__name__}: {e}"
    return "ok", rendered[0]


NOT_COMPARED = ("not implemented", "beyond 64 bits")  # what is refused with a word where Python goes on


def compare(dump, template, conversation, special):
    """None where both give the same text or words, or both refuse; else both answers."""
    fault, text, spans = dump.render(conversation)
    kind, expected = oracle(template, copy.deepcopy(conversation), **special)
    if any(word in text for word in NOT_COMPARED) or " object at 0x" in expected:
        return None
    same = fault == kind and text == expected if kind in ("ok", "raised") else fault in ("value", "limit", "input")
    if fault == "ok":
        size = len(text.encode())
        borders = [b for span in spans for b in span]
        assert borders == sorted(borders) and all(0 <= b <= size for b in borders)
    return None if same else ((fault, text), (kind, expected))
