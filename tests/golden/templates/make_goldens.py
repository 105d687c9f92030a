#!/usr/bin/env python3
"""Renders every *.jinja of a folder over the conversations of cases.json with Jinja2, set up as
transformers' chat_template_utils does, and writes NAME.json beside each.

    pip install jinja2==3.1.6
    python3 tests/golden/templates/make_goldens.py [FOLDER]

FOLDER defaults to this one. With the templates of real checkpoints in some folder (each as
NAME.jinja), this program and

    TUTTI_TEMPLATES=FOLDER tests/unit/test_chat_templates

compare tutti with Jinja2 on them too.

A result is a string, or {"error": what raise_exception said or null}. Beside the text stand its
painted stretches [start, n, start, n ..] in bytes: what came from the conversation's contents,
found by rendering once more with each of their characters moved to a private plane. It is null
where the template looks into the contents, so that painting changes its path."""
import copy
import datetime
import json
import pathlib
import sys

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

PLANE = 0xF0000
# Words that templates compare with, so that painting them would only change the path.
PLAIN_KEYS = {"role", "type", "id", "tool_call_id"}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


class Refused(TemplateError):
    pass


def environment(now):
    def raise_exception(message):
        raise Refused(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    date = datetime.datetime.fromtimestamp(now, datetime.timezone.utc)
    env.globals["strftime_now"] = date.strftime
    return env


def variables(request, tokens):
    given = {"tools": request.get("tools") or None, "documents": request.get("documents") or None,
             "messages": request["messages"],
             "add_generation_prompt": request.get("add_generation_prompt", True)}
    return {**tokens, **given, **request.get("chat_template_kwargs", {})}


def paint(value, key=None):
    if isinstance(value, dict):
        return {k: paint(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [paint(v, key) for v in value]
    if isinstance(value, str) and key not in PLAIN_KEYS:
        # White space stays, so that trimming does what it did.
        return "".join(c if c.isspace() or ord(c) > 0xffff else chr(PLANE + ord(c)) for c in value)
    return value


def stretches(painted, text):
    plain, runs, at = [], [], 0
    for c in painted:
        moved = PLANE <= ord(c) <= PLANE + 0xffff
        c = chr(ord(c) - PLANE) if moved else c
        n = len(c.encode())
        if moved:
            if runs and runs[-1][0] + runs[-1][1] == at:
                runs[-1][1] += n
            else:
                runs.append([at, n])
        at += n
        plain.append(c)
    return [x for run in runs for x in run] if "".join(plain) == text else None


def render(template, request, tokens):
    try:
        return template.render(**variables(request, tokens))
    except Refused as refused:
        return {"error": str(refused)}
    except Exception as error:  # an undefined value used, types that do not go together
        print(f"    {request['name']}: {type(error).__name__}: {error}", file=sys.stderr)
        return {"error": None}


def golden(path, cases):
    env = environment(cases["now"])
    source = path.read_text()
    tokens = cases["tokens"].get(path.stem, {"bos_token": "<s>", "eos_token": "</s>"})
    template = env.from_string(source)
    rows = []
    for request in cases["requests"]:
        row = {"name": request["name"], "text": render(template, request, tokens)}
        if isinstance(row["text"], str):
            painted = copy.deepcopy(request)
            painted["messages"] = paint(request["messages"])
            if "tools" in request:
                painted["tools"] = paint(request["tools"])
            moved = render(template, painted, tokens)
            row["painted"] = stretches(moved, row["text"]) if isinstance(moved, str) else None
        rows.append(row)
    return {"tokens": tokens, "rows": rows}


def main():
    here = pathlib.Path(__file__).parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    cases = json.loads((here / "cases.json").read_text())
    for path in sorted(folder.glob("*.jinja")):
        print(path.stem, file=sys.stderr)
        rows = golden(path, cases)
        lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows["rows"])
        text = '{"tokens": %s,\n "rows": [\n%s\n]}\n' % (json.dumps(rows["tokens"]), lines)
        path.with_suffix(".json").write_text(text)


if __name__ == "__main__":
    main()
