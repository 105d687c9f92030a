#!/usr/bin/env python3
"""Writes language.jsonl: small templates with what Jinja2, set up as in make_goldens.py, makes of
them. Some are written by hand, one or more for each construct; the others are put together at
random (the seed is fixed). A line is {"t": template, "text": text} or {"t": .., "error": kind},
kind "run" or "parse". The first line holds the variables that all of them see."""
import copy
import json
import pathlib
import random

from jinja2 import TemplateSyntaxError

from make_goldens import environment

NOW = 1750000000
VARIABLES = {
    "s": "Hello, Wörld! ", "e": "", "t": "a-b c.d\n\nx\ty  z", "q": "it's \"q\" \\ <b>&\u007f\u0001\u2028😀",
    "n": None, "yes": True, "no": False, "i": 7, "m": -3, "z": 0, "f": 2.5, "g": 1e22, "h": 0.1,
    "l": [3, 1, 2], "w": ["b", "A", "c", "B", "a"], "le": [], "mix": [1, "x", None, True, 2.0, [1], {"k": "v"}],
    "d": {"b": 1, "a": 2, "C": [1, {"x": None}], "items": "own", "ü": "é"}, "de": {},
    "ms": [{"role": "system", "content": "S", "n": 2}, {"role": "user", "content": "U", "n": 1},
           {"role": "user", "content": "u", "n": 1, "x": {"y": 5}}, {"role": "tool", "content": None}],
}

HAND = r"""
{{ s }}|{{ e }}|{{ n }}|{{ yes }}|{{ i }}|{{ f }}|{{ g }}|{{ h }}|{{ l }}|{{ mix }}|{{ d }}|{{ nowhere }}
{{ 1.0 }} {{ 1e16 }} {{ 123456789012345678 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.5e300 }} {{ 100.0 }} {{ 1/3 }} {{ 2.50 }} {{ 1_000 }} {{ 0x1f }} {{ -0.0 }} {{ 5e-324 }} {{ 1e15 + 0.3 }} {{ 9007199254740993 / 1 }}
{{ q }} {{ [q] }} {{ {q: q} }} {{ ["it's"] }} {{ ['"'] }} {{ ["'\""] }} {{ ['\u00a0\u200b\u3000'] }} {{ ['\t\n\r'] }}
{{ q | tojson }} {{ q | tojson(ensure_ascii=True) }} {{ d | tojson(indent=2) }} {{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ mix | tojson(indent=1) }} {{ le | tojson(indent=3) }} {{ de | tojson }} {{ l | tojson(indent='--') }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}
{{ d.items() }} {{ d.keys() | list }} {{ d.values() }} {{ d['items'] }} {{ d.items is callable }} {{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 4) }} {{ d['zz'] }} {{ d.zz }}
{{ (1,) }} {{ (1, 2) }} {{ () }} {{ [] }} {{ {} }} {{ [[1, 'a'], (none, true)] }}
{{ l[0] }} {{ l[-1] }} {{ l[9] }} {{ l[1:] }} {{ l[::-1] }} {{ l[-2:] }} {{ l[:-1] }} {{ l[5:] }} {{ l[::2] }} {{ l[-1:-9:-2] }} {{ l[2:0:-1] }} {{ l[::-9] }} {{ l[:9223372036854775807] }}
{{ s[0] }} {{ s[-2] }} {{ s[7:12] }} {{ s[::-1] }} {{ s[::3] }} {{ s[99] }} {{ s[:-3] }} {{ s[-4:] }} {{ s[8:6:-1] }} {{ (1, 2, 3)[1:] }} {{ l.0 }}
{{ 1 + 2 * 3 ** 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ true + 1 }} {{ -m }} {{ +m }} {{ - 2 ** 2 }} {{ 10 - 2 - 3 }} {{ 2 * f }} {{ (-1) ** 3 }} {{ 0 ** 0 }}
{{ 'a' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 }} {{ l + [4] }} {{ (1,) + (2,) }} {{ 'a' * -1 }}
{{ 1 ~ 2 ~ n ~ nowhere ~ l }} {{ 1 + 2 ~ 3 + 4 }}
{{ 1 ~ 'a' ~ 2 * 3 }} {{ 'a' ~ 'b' | upper }} {{ ('a' ~ 'b') | upper }} {{ -1 | abs }} {{ (-1) | abs }} {{ 'a' 'b' "c" }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'a' == 1 }} {{ none == none }} {{ nowhere == none }} {{ nowhere == nowhere2 }} {{ l == [3, 1, 2] }} {{ d == {} }} {{ (1, 2) == [1, 2] }} {{ 1 != 2 != 3 }}
{{ 'b' in d }} {{ 'b' not in d }} {{ 1 in l }} {{ 'ell' in s }} {{ '' in e }} {{ 1 in nowhere }} {{ none in mix }} {{ not 'x' in s }} {{ not (1 in l) }} {{ [1] in mix }} {{ 1 in {1: 2} }} {{ 'A' in w | map('upper') }}
{{ yes and no }} {{ yes and 'x' }} {{ e or 'y' }} {{ n or e }} {{ not e }} {{ not not 1 }} {{ yes or nowhere.x }} {{ no and nowhere.x }} {{ nowhere or 1 }}
{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }} {{ 'a' if no }} {{ 1 if no else 2 if no else 3 }} {{ ('x' if no) is defined }} {{ 'a' if no ~ 'b' }}
{{ nowhere is defined }} {{ s is defined }} {{ n is none }} {{ n is not none }} {{ d is mapping }} {{ l is mapping }} {{ l is iterable }} {{ s is iterable }} {{ i is iterable }} {{ nowhere is iterable }} {{ s is string }} {{ l is sequence }} {{ d is sequence }} {{ nowhere is sequence }} {{ i is number }} {{ yes is number }} {{ yes is integer }} {{ i is integer }} {{ f is float }} {{ yes is boolean }} {{ yes is true }} {{ 1 is true }} {{ no is false }} {{ 0 is false }} {{ i is odd }} {{ i is even }} {{ i is divisibleby 7 }} {{ i is divisibleby(2) }} {{ i is eq 7 }} {{ i is equalto(7) }} {{ i is ne 7 }} {{ i is lt 8 }} {{ i is gt(8) }} {{ i is in [7] }} {{ i is in(l) }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'upper' is filter }} {{ 'zz' is filter }} {{ 'odd' is test }} {{ n is sameas none }} {{ d.items is callable }} {{ d.keys() is sequence }} {{ nowhere is callable }} {{ nowhere is none }} {{ (l | map('string')) is iterable }} {{ range(3) is sequence }}
{{ s | upper }}{{ s | lower }}{{ s | title }}{{ s | capitalize }}{{ 'a-b c(d[e' | title }}{{ "it's a dog's" | title }}{{ "it's a dog's".title() }}{{ 'aBC dEF'.swapcase() }}{{ 'straße'.upper() }}{{ 'ǆ'.title() }}{{ 'ÀÉ'.lower() }}{{ i | upper }}{{ n | lower }}{{ nowhere | upper }}
[{{ s | trim }}][{{ '  x ' | trim }}][{{ '--x-' | trim('-') }}][{{ ' x '.strip() }}][{{ 'xyx'.strip('x') }}][{{ '\u3000x\u00a0'.strip() }}][{{ 'xxa'.lstrip('x') }}][{{ 'axx'.rstrip('x') }}][{{ '  a '.lstrip() }}][{{ '  a '.rstrip() }}][{{ 'äxä'.strip('ä') }}][{{ 5 | trim }}]
{{ s | replace('l', 'L') }} {{ s | replace('l', 'L', 1) }} {{ 'aaa' | replace('a', '') }} {{ 'ab' | replace('', '-') }} {{ 'aaa'.replace('aa', 'b') }} {{ 'ab'.replace('', '.', 2) }} {{ 12321 | replace(2, 0) }} {{ 'x'.replace('y', 'z') }} {{ 'ä'.replace('', '|') }}
{{ t.split() }} {{ t.split('-') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ ',a,'.split(',') }} {{ ' a  b '.split(none, 1) }} {{ t.splitlines() }} {{ 'a\r\nb\rc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ 'abc'.rpartition('-') }} {{ 'a,b'.split(sep=',') }} {{ 'a b c'.split(maxsplit=1) }}
{{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'hello'.find('z') }} {{ 'hello'.index('e') }} {{ 'hello'.count('l') }} {{ 'aaaa'.count('aa') }} {{ 'äöü'.find('ü') }} {{ 'hello'.find('l', 3) }} {{ 'hello'.find('l', 0, 2) }} {{ 'äöü'.count('') }} {{ 'hello'.find('', 9) }} {{ 'hello'.find('', 5) }} {{ 'hello'.find('o', -1) }} {{ 'hello'.count('l', 3, 4) }}
{{ 'hello'.startswith('he') }} {{ 'hello'.endswith('lo') }} {{ 'hello'.startswith(('x', 'h')) }} {{ 'hello'.endswith(('x',)) }} {{ 'hello'.startswith('') }} {{ 'hello'.startswith('l', 2) }} {{ 'hello'.removeprefix('he') }} {{ 'hello'.removesuffix('lo') }} {{ 'hello'.removeprefix('lo') }}
{{ 'abc'.isalpha() }} {{ 'a1'.isalnum() }} {{ '12'.isdigit() }} {{ ' \n'.isspace() }} {{ ''.isalpha() }} {{ 'ab'.islower() }} {{ 'AB'.isupper() }} {{ '1'.islower() }} {{ 'é'.isascii() }} {{ 'ab'.ljust(4) }}| {{ 'ab'.rjust(4, '*') }} {{ '-7'.zfill(4) }} {{ '7'.zfill(3) }}
{{ ','.join(w) }} {{ w | join }} {{ w | join('-') }} {{ mix | join('|') }} {{ ms | join(',', attribute='role') }} {{ s | join('.') }} {{ d | join(',') }} {{ nowhere | join(',') }}
{{ l | length }} {{ s | length }} {{ d | length }} {{ nowhere | length }} {{ e | count }} {{ range(4) | length }} {{ '😀é' | length }} {{ d.items() | length }}
{{ nowhere | default('x') }} {{ e | default('x') }} {{ e | default('x', true) }} {{ n | d('x') }} {{ n | d('x', boolean=true) }} {{ nowhere | default }} {{ d.zz | default(1) }}
{{ '12' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ '1.9' | int }} {{ 2.9 | int }} {{ -2.9 | int }} {{ ' 7 ' | int }} {{ '0x1f' | int(0, 16) }} {{ '1_0' | int }} {{ true | int }} {{ n | int }} {{ 'ff' | int(base=16) }} {{ '1.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ '1e3' | float }} {{ 2.567 | round(1) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.1 | round(0, 'ceil') }} {{ 2.9 | round(method='floor') }} {{ -5 | abs }} {{ (-5.5) | abs }} {{ 3 | string ~ 4 }}
{{ l | sort }} {{ l | sort(reverse=true) }} {{ w | sort }} {{ w | sort(case_sensitive=true) }} {{ ms[:3] | sort(attribute='n') | map(attribute='content') | list }} {{ ms[:3] | sort(attribute='n,content') | map(attribute='content') | list }} {{ d | dictsort }} {{ {'b': 2, 'a': 3, 'c': 1} | dictsort(by='value') }} {{ {'b': 2, 'B': 3} | dictsort(true) }} {{ {'b': 2, 'a': 3} | dictsort(reverse=true) }} {{ w | unique | list }} {{ w | unique(true) | list }} {{ l | min }} {{ l | max }} {{ w | max }} {{ le | min }} {{ ms[:3] | max(attribute='n') }} {{ l | sum }} {{ ms[:3] | sum('n') }} {{ ms[:3] | sum(attribute='n', start=10) }} {{ ms[1:3] | unique(attribute='n') | list | length }}
{{ l | first }} {{ l | last }} {{ le | first }} {{ s | first }} {{ s | last }} {{ d | first }} {{ d | last }} {{ (l | map('string')) | first }} {{ l | reverse | list }} {{ 'abc' | reverse }} {{ s | list }} {{ d | list }} {{ d | items | list }} {{ nowhere | items | list }} {{ nowhere | list }}
{{ ms | selectattr('role', 'equalto', 'user') | list | length }} {{ ms | rejectattr('role', 'eq', 'user') | map(attribute='role') | list }} {{ ms | selectattr('x') | list | length }} {{ ms | rejectattr('content', 'none') | list | length }} {{ ms | selectattr('x.y', 'defined') | list | length }} {{ l | select('odd') | list }} {{ l | reject('gt', 1) | list }} {{ mix | select | list }} {{ mix | select('string') | list }} {{ ms | map(attribute='x.y', default='-') | list }} {{ w | map('upper') | join }} {{ w | map('replace', 'a', 'z') | list }} {{ l | map('float') | list }} {{ n | select | list }} {{ w | map('upper') | map('lower') | list }} {{ ms | map(attribute='zz') | list }} {{ ms | selectattr('role', 'in', ['user', 'tool']) | list | length }}
{{ 'yes' if le | select else 'no' }} {{ 'yes' if l | map('string') else 'no' }} {{ l | batch(2) | list }} {{ l | batch(2, 'x') | list }} {{ range(7) | slice(3) | list }} {{ range(7) | slice(3, 'x') | list }}
{{ 'a\nb\n\nc' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb' | indent(1, blank=true) }} {{ 'a\nb\n' | indent('> ') }}|{{ '' | indent }}|{{ 'x y  z-1' | wordcount }}
{{ '<a>' | safe }} {{ ('<a>' | safe) + '<b>' }} {{ '<b>' + ('<a>' | safe) }} {{ '<&>"\'' | e }} {{ '<' | escape | escape }} {{ '<' | e | forceescape }} {{ ('<a>' | safe) ~ '<b>' }} {{ d | tojson | safe }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}{% for x in nowhere %}x{% else %}E{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'äb' %}{{ c }}.{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}{% for a, b in ['xy', [1, 2]] %}{{ a }}{{ b }}{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }}{% endfor %};{% endfor %}
{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% for y in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{% endfor %}{{ loop }}
{% set x = 1 %}{% for y in l %}{{ x }}{% set x = x + y %}{{ x }} {% endfor %}{{ x }}{% if yes %}{% set x = 9 %}{% endif %}{{ x }}
{% set ns = namespace(a=1, b=[]) %}{% for y in l %}{% set ns.a = ns.a + y %}{% set ns.b = ns.b + [y] %}{% set ns.c = y %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.zz }}{{ ns is mapping }}{{ namespace({'q': 1}).q }}{{ namespace(x=ns).x.a }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (a, b) = (b, a) %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% set ns = namespace() %}{% set ns.x, y = 5, 6 %}{{ ns.x }}{{ y }}
{% set x %}a{{ i }}b{% endset %}[{{ x }}]{% set y | upper | replace('A', 'z') %}a{% set q = 1 %}b{% endset %}[{{ y }}]{{ q }}
{% macro f(a, b=2, c=a) %}[{{ a }},{{ b }},{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(b=5, a=4) }}{{ f() }}{{ f(1) | length }}{{ f(1) + 'x' }}{{ f is callable }}{% set r = f(0) %}{{ r }}
{% macro f(x) %}{{ y }}{{ x }}{% set y = 5 %}{% endmacro %}{{ f(1) }}{% set y = 2 %}{{ f(1) }}{{ y }}{% macro g(n) %}{% if n > 0 %}{{ n }}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(4) }}{% macro h() -%} a {%- endmacro %}[{{ h() }}]
{% macro f() %}<{{ caller(1) }}|{{ caller(2) }}>{% endmacro %}{% call(v) f() %}{{ v }}{{ i }}{% endcall %}{% macro g(a) %}{{ a }}{{ caller() }}{% endmacro %}{% call g('x') %}body{% endcall %}
{% macro f(a, b) %}{{ a }}-{{ b }}{% endmacro %}{{ f(*[1, 2]) }} {{ f(**{'a': 3, 'b': 4}) }} {{ f(1, **{'b': 4}) }}{{ dict(a=1, **{'b': 2}) }}{{ dict({'z': 1}, y=2) }}
{% with a = 1, b = i %}{{ a }}{{ b }}{% set a = 3 %}{{ a }}{% endwith %}{{ a }}{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}{% filter upper %}x{{ s }}{% endfilter %}{% filter replace('a', 'b') | upper %}a{% endfilter %}
{% generation %}a{{ i }}{% set zz = 1 %}{% endgeneration %}{{ zz }}{% if no %}{% elif yes %}E{% else %}N{% endif %}{% if no %}a{% elif no %}b{% else %}{% if yes %}c{% endif %}d{% endif %}
{% raw %}{{ x }} {% if %}{# #}{% endraw %}|  {%- raw -%}  a {{ }}  {%- endraw -%}  |{#- c -#} |{# a #}{##}x
a  {{- ' b ' -}}  c {%- if yes %} d {% endif -%} e{#- x -#} f  {%+ if yes %}g{% endif +%}
{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(3)[1] }} {{ range(3)[-1] }}{% for x in range(2) %}{{ x }}{% endfor %} {{ 2 in range(3) }}
{{ '\x41\u00e9\t|\\|\'|\"|\q|\101' }} {{ "a'b" }} {{ 'a"b' }} {{ 'é' }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %B %b %A %j %%') }}
{{ raise_exception('no: ' ~ i) }}
{{ nowhere.x }}
{{ n.x }}{{ n['x'] }}{{ i.x }}{{ l.x }}{{ l['x'] }}{{ s.x }}{{ s['x'] }}{{ d[1] }}{{ d[[1]] is defined }}
{{ n.x.y }}
{{ n[0] }}{{ i[0] }}{{ n[0].x }}
{{ nowhere[0] }}
{{ nowhere() }}
{{ nowhere + 1 }}
{{ n + 1 }}
{{ 'a' + 1 }}
{{ 1 < n }}
{{ l < 1 }}
{{ 1 in i }}
{{ 1 in s }}
{{ nowhere < 1 }}
{{ -nowhere }}
{{ l.append(4) }}
{{ d.update({}) }}
{{ d.pop is defined }}{{ l.append is defined }}
{{ l | map('upper') | length }}
{{ l | map('upper') | tojson }}
{{ nowhere | tojson }}
{{ nowhere | int }}
{% for x in n %}{% endfor %}
{% for x in i %}{% endfor %}
{% for a, b in l %}{% endfor %}
{% set x.y = 1 %}
{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{% endmacro %}{{ f(z=2) }}
{{ 'abc'.index('z') }}
{{ l.index(9) }}
{{ l.index(1) }}{{ l.count(3) }}{{ (1, 2, 1).count(1) }}
{{ 1 / 0 }}
{{ 'a'.split('') }}
{{ s | zzz }}
{{ s is zzz }}
{% zzz %}
{% if yes %}
{{ a b }}
{{ (1, }}
{{ 'a }}
{% endfor %}
{% if yes %}{% endfor %}
{% macro f(a=1, b) %}{% endmacro %}
{{ f(a=1, 2) }}
{{ [1, 2,] }}{{ (1, 2,) }}{{ {'a': 1,} }}{{ f is defined and f }}
{{ {'a': {'b': {'c': 1}}} }}{{ {'a': {'b': {'c': 1}}}['a']['b'].c }}{{ {'}}': '%}'} }}
{{ 1, 2 }}{{ (1) }}{{ 1, }}
"""

OPERANDS = ["s", "e", "t", "n", "yes", "no", "i", "m", "z", "f", "l", "w", "le", "d", "de", "ms", "mix", "nowhere",
            "1", "0", "2.5", "'x'", "''", "[1, 'a']", "{'a': 1}", "none", "ms[0]", "ms[1].content", "d.b", "l[0]",
            "w[::-1]", "s[1:4]"]
# Jinja2 folds slices of constants by other rules than those of variables.
SLICED = ["s", "t", "e", "l", "w", "le", "ms", "mix", "d", "i", "nowhere", "ms[0].content"]
BINARY = ["+", "-", "*", "//", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in", "not in"]
FILTERS = ["upper", "lower", "title", "trim", "length", "first", "last", "join(',')", "list", "string", "tojson",
           "default('D')", "default('D', true)", "int", "float", "replace('a', 'b')", "sort", "reverse", "unique | list",
           "items | list", "capitalize", "abs", "round", "sum", "min", "max", "select | list", "map('string') | list", "indent(2)",
           "dictsort", "batch(2) | list", "selectattr('role') | list", "map(attribute='role') | list"]
TESTS = ["defined", "none", "string", "mapping", "iterable", "number", "sequence", "true", "odd", "integer", "eq(1)",
         "in([1, 7])", "lower", "boolean"]
METHODS = ["strip()", "split()", "upper()", "split('a', 1)", "startswith('H')", "items()", "keys()", "get('a', 0)",
           "count('l')", "find('o')", "title()", "replace('l', '')"]


def expression(r, depth):
    if depth == 0 or r.random() < 0.15:
        return r.choice(OPERANDS)
    kind = r.randrange(9)
    inner = expression(r, depth - 1)
    if kind < 2:
        return "(%s %s %s)" % (inner, r.choice(BINARY), expression(r, depth - 1))
    if kind < 4:
        return "(%s) | %s" % (inner, r.choice(FILTERS))
    if kind == 4:
        return "((%s) is %s%s)" % (inner, r.choice(["", "not "]), r.choice(TESTS))
    if kind == 5:
        return "(%s if %s else %s)" % (inner, expression(r, depth - 1), expression(r, depth - 1))
    if kind == 6:
        return "(%s).%s" % (inner, r.choice(METHODS))
    if kind == 7:
        return "[%s, %s]" % (inner, expression(r, depth - 1))
    if kind == 8 and r.random() < 0.5:
        return "(%s)[%s]" % (r.choice(SLICED), r.choice(["1:", "::-1", ":2", "-2:", "::2"]))
    return "(%s)[%s]" % (inner, r.choice(["0", "-1", "'a'", "'role'"]))


def statement(r, depth):
    gap = r.choice(["", " ", "\n", "\n  ", " \n"])
    a, b = r.choice(["", "", "", "-", "+"]), r.choice(["", "", "-"])
    tag = lambda text: "{%%%s %s %s%%}%s" % (a, text, b, gap)
    e = expression(r, 2)
    if depth == 0 or r.random() < 0.3:
        return r.choice(["x ", "\n", "{{%s %s %s}}" % (a.replace("+", ""), e, b), "{#%s c %s#}" % (a, b)]) + gap
    body = "".join(statement(r, depth - 1) for _ in range(r.randrange(1, 4)))
    kind = r.randrange(5)
    if kind == 0:
        return tag("if " + e) + body + tag("else") + statement(r, 0) + tag("endif")
    if kind == 1:
        return tag("for v in " + r.choice(["l", "w", "ms", "d", "le", "'abc'", "range(3)"])) + "{{ loop.index }}{{ v }}" + body + tag("endfor")
    if kind == 2:
        return tag("set i = " + e) + "{{ i }}" + body
    if kind == 3:
        return tag("macro f(a, b=1)") + "{{ a }}" + body + tag("endmacro") + "{{ f(%s) }}" % r.choice(OPERANDS)
    return tag("set u") + body + tag("endset") + "{{ u }}"


N_TEXTS, N_ERRORS = 500, 100  # made at random


def run(env, source):
    """The line of a template; None if its text depends on how Python names its own objects."""
    try:
        text = env.from_string(source).render(**copy.deepcopy(VARIABLES))
    except TemplateSyntaxError:
        return {"t": source, "error": "parse"}
    except Exception:
        return {"t": source, "error": "run"}
    own = (" object at 0x", "<Generator", "<generator", "<built-in", "<bound", "<method")
    return None if any(word in text for word in own) else {"t": source, "text": text}


def main():
    here = pathlib.Path(__file__).parent
    env = environment(NOW)
    r = random.Random(20260101)
    templates = [line for line in HAND.split("\n") if line]
    lines = [json.dumps({"now": NOW, "variables": VARIABLES}, ensure_ascii=False)]
    lines += [json.dumps(row, ensure_ascii=False) for row in (run(env, t) for t in templates) if row]
    wanted = {"text": N_TEXTS, "error": N_ERRORS}
    while any(wanted.values()):
        source = ("{{ %s }}" % expression(r, 3) if r.random() < 0.6 else
                  "".join(statement(r, 2) for _ in range(2)))
        row = run(env, source)
        kind = row and ("text" if "text" in row else "error")
        if row and wanted[kind] and len(row.get("text", "")) < 500:
            wanted[kind] -= 1
            lines.append(json.dumps(row, ensure_ascii=False))
    (here / "language.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
